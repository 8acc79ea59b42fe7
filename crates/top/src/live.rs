//! The frame on a terminal, drawn again and again.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bothends_scrape::Endpoint;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};

use crate::frame;
use crate::look::Look;
use crate::view::View;

/// From one look for a signal to the next.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Until a key ends it. The terminal is as it was afterwards, also where something fails.
pub(crate) fn show(
    endpoints: &[Endpoint],
    every: Duration,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let shown = run(&mut terminal, endpoints, every, stop);
    let restored = ratatui::try_restore();
    shown.and(restored)
}

fn run(
    terminal: &mut DefaultTerminal,
    endpoints: &[Endpoint],
    every: Duration,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut before = None;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let look = Look::at(endpoints);
        let view = View::of(before.as_ref(), &look);
        before = Some(look);
        loop {
            terminal.draw(|screen| {
                let area = screen.area();
                frame::draw(&view, area, screen.buffer_mut());
            })?;
            let left = every.saturating_sub(began.elapsed());
            // Keys are looked at also where the look took all of the time: Ctrl-C is one of them. Everything
            // else is a key without a meaning, or a change of the screen size.
            if event::poll(left.min(LOOK_EVERY))? && ends(&event::read()?) {
                return Ok(());
            }
            if left.is_zero() || stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    Ok(())
}

fn ends(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, .. }) = event else { return false };
    let is_interrupt =
        *code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || [KeyCode::Char('q'), KeyCode::Esc].contains(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_keys_end_it() {
        let key = |code, modifiers| ends(&Event::Key(KeyEvent::new(code, modifiers)));
        let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        assert!(key(KeyCode::Char('q'), none) && key(KeyCode::Esc, none));
        assert!(key(KeyCode::Char('c'), control));
        assert!(!key(KeyCode::Char('c'), none) && !ends(&Event::Resize(80, 24)));
    }
}
