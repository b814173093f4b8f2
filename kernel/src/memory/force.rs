//! Writing into the memory of a program as a tracer does, whatever the program itself may write.

use abi::Errno;

use super::fault::Access;
use super::layout::{PAGE, is_user_range};
use super::user::UserMemory;

impl UserMemory {
    /// Writes `from` to `address`. Private memory that the program may not write gets a copy of its own.
    ///
    /// # Errors
    /// `EFAULT`; part may have been written.
    pub async fn write_forcibly(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        if !is_user_range(address, from.len() as u64) {
            return Err(Errno::EFAULT);
        }
        let mut done = 0;
        while let Some(rest) = from.get(done..).filter(|rest| !rest.is_empty()) {
            let at = address + done as u64;
            let in_page = (PAGE - at % PAGE).min(rest.len() as u64) as usize;
            let part = rest.get(..in_page).unwrap_or(rest);
            if self.write_bytes(at, part).await.is_err() {
                self.bring_in(at, Access::READ).await?;
                self.space().poke(at, part)?;
            }
            done += part.len();
        }
        Ok(())
    }
}
