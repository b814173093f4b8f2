//! Control messages: descriptors and credentials.

use abi::Errno;
use abi::socket::*;
use alloc::boxed::Box;
use alloc::vec::Vec;
use fs::OpenFile;
use net::rights::{Passed, Rights, discard};
use net::socket::Outgoing;
use zerocopy::{FromBytes, IntoBytes};

use crate::call::Call;
use crate::process::{Capability, Pid, Resource, table};
use crate::socket::{CONTROL_LIMIT, PassedFile};

/// Bytes of a header.
const HEADER: usize = size_of::<ControlHeader>();
/// Puts what the control messages of a `sendmsg` say into the message.
pub async fn read(
    call: &Call,
    address: u64,
    length: u64,
    outgoing: &mut Outgoing,
) -> Result<(), Errno> {
    if length > CONTROL_LIMIT {
        return Err(Errno::ENOBUFS);
    }
    let length = usize::try_from(length).map_err(|_| Errno::ENOBUFS)?;
    let bytes = call.user().read_vector(address, length).await?;
    let mut files: Vec<Box<dyn Passed>> = Vec::new();
    let mut rest = bytes.as_slice();
    while let Ok((header, _)) = ControlHeader::read_from_prefix(rest) {
        let length = usize::try_from(header.length).map_err(|_| Errno::EINVAL)?;
        let data = rest.get(HEADER..length).ok_or(Errno::EINVAL)?;
        match (header.level, header.kind) {
            (SOL_SOCKET, SCM_RIGHTS) => take_files(call, data, &mut files)?,
            (SOL_SOCKET, SCM_CREDENTIALS) => {
                let credentials =
                    UserCredentials::read_from_bytes(data).map_err(|_| Errno::EINVAL)?;
                check_credentials(call, &credentials)?;
                outgoing.credentials = credentials;
                outgoing.is_explicit = true;
            }
            (SOL_SOCKET, _) => return Err(Errno::EINVAL),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    if !files.is_empty() {
        let rights = Rights::new(files, call.thread.credentials().user.real);
        let credentials = call.thread.credentials();
        if !credentials.is_capable(Capability::Resource)
            && !credentials.is_capable(Capability::Administer)
        {
            rights.check(call.process().limits.soft(Resource::Files))?;
        }
        outgoing.rights = Some(Box::new(rights));
    }
    Ok(())
}

fn take_files(call: &Call, data: &[u8], files: &mut Vec<Box<dyn Passed>>) -> Result<(), Errno> {
    let count = data.len() / size_of::<i32>();
    if count > SCM_MAX_FD || files.len() + count > SCM_MAX_FD {
        return Err(Errno::EINVAL);
    }
    files.try_reserve(count).map_err(|_| Errno::ENOMEM)?;
    let table = call.thread.files();
    for chunk in data.as_chunks().0 {
        let file = table.get(i32::from_ne_bytes(*chunk))?;
        files.push(Box::new(PassedFile(file)));
    }
    Ok(())
}

/// A program may claim to be what it is, or anything with privilege.
fn check_credentials(call: &Call, claimed: &UserCredentials) -> Result<(), Errno> {
    let credentials = call.thread.credentials();
    let is_itself = claimed.process == call.process().pid.0;
    let may_be_process = is_itself || credentials.is_capable(Capability::Administer);
    let may_be_user =
        credentials.user.has(claimed.user) || credentials.is_capable(Capability::SetUser);
    let may_be_group =
        credentials.group.has(claimed.group) || credentials.is_capable(Capability::SetGroup);
    if !may_be_process || !may_be_user || !may_be_group {
        return Err(Errno::EPERM);
    }
    if !is_itself && table::process(Pid(claimed.process)).is_none() {
        return Err(Errno::ESRCH);
    }
    if claimed.user == u32::MAX || claimed.group == u32::MAX {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Where `recvmsg` puts control messages.
pub struct Writer {
    address: u64,
    left: usize,
    /// Bytes written.
    pub written: u64,
    /// Something did not fit.
    pub is_cut: bool,
}

impl Writer {
    /// Room for control messages.
    pub fn new(address: u64, length: u64) -> Writer {
        Writer {
            address,
            left: usize::try_from(length).unwrap_or(usize::MAX),
            written: 0,
            is_cut: false,
        }
    }

    /// Writes one message, cut off where the room ends.
    async fn put(&mut self, call: &Call, kind: i32, data: &[u8]) -> Result<(), Errno> {
        if self.left < HEADER {
            self.is_cut = true;
            return Ok(());
        }
        let mut length = HEADER + data.len();
        if length > self.left {
            self.is_cut = true;
            length = self.left;
        }
        let header = ControlHeader { length: length as u64, level: SOL_SOCKET, kind };
        let mut bytes = Vec::from(header.as_bytes());
        bytes.extend_from_slice(data.get(..length - HEADER).unwrap_or(data));
        call.user().write_bytes(self.address, &bytes).await?;
        let step = length.next_multiple_of(8).min(self.left);
        self.address += step as u64;
        self.left -= step;
        self.written += step as u64;
        Ok(())
    }

    /// Tells who sent the message.
    pub async fn put_credentials(
        &mut self,
        call: &Call,
        credentials: &UserCredentials,
    ) -> Result<(), Errno> {
        self.put(call, SCM_CREDENTIALS, credentials.as_bytes()).await
    }

    /// Gives the received files descriptors, as many as there is room for, and tells them.
    pub async fn put_files(
        &mut self,
        call: &Call,
        files: Vec<Box<dyn Passed>>,
        close_on_exec: bool,
    ) -> Result<(), Errno> {
        let room = self.left.saturating_sub(HEADER) / size_of::<i32>();
        let wanted = files.len();
        let limit = call.process().limits.soft(Resource::Files);
        let table = call.thread.files();
        let mut descriptors: Vec<i32> = Vec::new();
        let mut unused = Vec::new();
        for passed in files {
            if descriptors.len() == room || !unused.is_empty() {
                unused.push(passed);
                continue;
            }
            let Ok(passed) = passed.into_any().downcast::<PassedFile>() else { continue };
            let file: alloc::sync::Arc<OpenFile> = passed.0;
            match table.insert(file, close_on_exec, limit) {
                Ok(descriptor) => descriptors.push(descriptor),
                Err(_) => break,
            }
        }
        if !descriptors.is_empty() {
            let is_cut = self.is_cut;
            self.put(call, SCM_RIGHTS, descriptors.as_bytes()).await?;
            self.is_cut = is_cut;
        }
        self.is_cut |= descriptors.len() < wanted;
        discard(unused);
        Ok(())
    }
}
