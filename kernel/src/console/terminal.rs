//! The console terminal, `/dev/console`: its line is the host's terminal.
//!
//! What the terminal puts out goes to the host as `Terminal` frames. What the user types comes as
//! standard input and is fed to the terminal, when the host's standard input is a terminal.

use alloc::sync::Arc;

use abi::console::MAX_PAYLOAD;
use base::sync::Once;
use fs::device::{self, CONSOLE_DEVICE};
use fs::terminal::Terminal;

use super::output::StreamState;
use super::*;

static TERMINAL: Once<Arc<Terminal>> = Once::new();

/// The console terminal.
pub fn terminal() -> &'static Arc<Terminal> {
    TERMINAL.call_once(|| {
        let terminal = Terminal::new(CONSOLE_DEVICE);
        terminal.set_slow_line();
        device::set_console(terminal.clone());
        terminal
    })
}

impl Channel {
    /// Moves the terminal's output to the host, for ever.
    pub async fn pump_terminal_output(&'static self) {
        let mut buffer = [0; MAX_PAYLOAD];
        loop {
            let ready = || match self.output.state_of(FrameKind::Terminal) {
                StreamState::Full => None,
                StreamState::Ready | StreamState::Closed(_) => Some(()),
            };
            self.output.room.wait_until(ready).await;
            let mut free: &mut [u8] = &mut buffer;
            terminal().begin_sending();
            let count = terminal().take_output(&mut free);
            if count > 0 {
                // A terminal that nobody reads any more swallows what it is given.
                self.write(FrameKind::Terminal, &buffer[..count]);
                self.output.note_sent();
            } else {
                self.output.note_sent();
                let has_output = || terminal().has_output().then_some(());
                terminal().output_ready().wait_until(has_output).await;
            }
        }
    }

    /// Feeds what the user types to the terminal, for ever.
    pub async fn pump_terminal_input(&'static self) {
        loop {
            self.input.changed.wait_until(|| self.input.has_bytes().then_some(())).await;
            self.input.feed(|bytes| terminal().receive(bytes));
            if self.input.has_bytes() {
                let has_room = || (terminal().input_room() > 0).then_some(());
                terminal().input_room_queue().wait_until(has_room).await;
            }
        }
    }
}
