//! The same on real threads: one feeds, one consumes, one is the device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bothends_gpu::staging::DeviceBatch;

use crate::world::{Case, Maker, World};

/// As often as everywhere: nothing takes longer, what does hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says that it is over, to the device's thread, even where the feeder fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_feeder_a_consumer_and_a_device_on_threads_of_their_own() {
    const N: u64 = 3_000;
    let case = Case {
        n_batches: N,
        device_slots: 3,
        host_slots: 3,
        n_consumers: 1,
        maker: Maker::Feed,
    };
    let world = World::new(case);
    let (fake, reader) = (world.fake.clone(), world.reader());
    let mut parts = world.into_parts();
    let is_over = AtomicBool::new(false);
    let (send, receive) = mpsc::sync_channel::<(u64, DeviceBatch)>(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !is_over.load(Ordering::Acquire) || fake.n_pending() > 0 {
                turn += 1;
                if !fake.advance(turn % 2) && !fake.advance(0) {
                    thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            for (stamp, mut batch) in receive {
                reader.read(stamp, &mut batch);
            }
        });
        let _over = Over(&is_over);
        let began = Instant::now();
        for stamp in 1..=N {
            while let Err(retry) = parts.submit(stamp, &send) {
                assert!(began.elapsed() < PATIENCE, "stuck at batch {stamp}: {retry}");
                thread::yield_now();
            }
        }
        drop(send);
    });
    fake.run_all();
    let seen = reader.seen();
    assert_eq!(seen.len() as u64, N);
    assert!(seen.iter().all(|(_, is_right)| *is_right), "a wrong byte");
    assert_eq!(fake.wrongs(), Vec::<String>::new());
    assert_eq!(fake.counts().waits, 0);
}
