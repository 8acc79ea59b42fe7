//! The NVMe/TCP target under hosts that come and go, fill their queues and lie, for a moment; `scripts/soak-nvme` does
//! the same for long. One test, since it counts what the process holds.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[path = "nvme/device.rs"]
mod device;
#[path = "nvme/host.rs"]
mod host;
#[path = "nvme/soak.rs"]
mod soak;

use bothends_nvme::pdu::Digest;

use device::Device;
use host::Wish;
use soak::{Model, connects, depths, hostile, leaves_nothing, many_queues, splits};

#[test]
fn hosts_come_and_go_and_leave_nothing_behind() {
    let device = Device::new();
    leaves_nothing(&device, || connects(&device, 100));
    leaves_nothing(&device, || many_queues(&device, 2));
    leaves_nothing(&device, || hostile(&device, 40));
    for digests in [Digest::Off, Digest::On] {
        leaves_nothing(&device, || splits(&device, digests));
    }
    let device = Device::new();
    leaves_nothing(&device, || depths(&device, 2));
    leaves_nothing(&device, || {
        let (_admin, mut io) = device.queues(Wish { digests: Digest::On, ..Wish::PLAIN });
        assert!(Model::new(1).run(&mut io, 200) > 0);
    });
}
