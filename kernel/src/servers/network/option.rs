//! Options of sockets: all that there are are those of level `SOL_SOCKET`.

use core::sync::atomic::Ordering;

use abi::Errno;
use abi::socket::option::*;
use abi::socket::{SOL_SOCKET, UserCredentials};
use abi::time::Timeval;
use alloc::vec::Vec;
use net::option::{BUFFER_LIMIT, Limit};
use zerocopy::IntoBytes;

use super::Handle;
use crate::call::{Call, SysResult};
use crate::process::Capability;

/// Options that are on or off and that anybody may change.
const SWITCHES: [i32; 13] = [
    SO_REUSEADDR,
    SO_DONTROUTE,
    SO_BROADCAST,
    SO_KEEPALIVE,
    SO_OOBINLINE,
    SO_NO_CHECK,
    SO_REUSEPORT,
    SO_PASSCRED,
    SO_TIMESTAMP,
    SO_PASSSEC,
    SO_RXQ_OVFL,
    SO_LOCK_FILTER,
    SO_SELECT_ERR_QUEUE,
];
/// The highest priority that needs no privilege.
const MOST_PRIORITY: i32 = 6;

pub async fn setsockopt(call: &Call) -> SysResult {
    let handle = Handle::new(call, 0)?;
    let (level, name, address) = (call.int(1), call.int(2), call.argument(3));
    let length = usize::try_from(call.int(4)).map_err(|_| Errno::EINVAL)?;
    if level != SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    if name == SO_BINDTODEVICE {
        return Err(Errno::ENOPROTOOPT);
    }
    if length < size_of::<i32>() {
        return Err(Errno::EINVAL);
    }
    let value: i32 = call.user().read_value(address).await?;
    let options = handle.socket.options();
    let credentials = call.thread.credentials();
    let is_privileged = credentials.is_capable(Capability::Administer);
    match name {
        SO_DEBUG if value != 0 && !is_privileged => return Err(Errno::EACCES),
        SO_DEBUG => options.turn(name, value != 0),
        SO_PASSCRED => options.turn(name, value != 0),
        _ if SWITCHES.contains(&name) => options.turn(name, value != 0),
        SO_SNDBUF => {
            // As in Linux, a negative number is a very large one.
            options.set_send_buffer(u64::from(value.cast_unsigned()).min(BUFFER_LIMIT));
            handle.socket.writable().wake_all();
        }
        SO_RCVBUF => options.set_receive_buffer(u64::from(value.cast_unsigned()).min(BUFFER_LIMIT)),
        SO_SNDBUFFORCE | SO_RCVBUFFORCE if !is_privileged => return Err(Errno::EPERM),
        SO_SNDBUFFORCE => {
            options.set_send_buffer(u64::try_from(value).unwrap_or(0));
            handle.socket.writable().wake_all();
        }
        SO_RCVBUFFORCE => options.set_receive_buffer(u64::try_from(value).unwrap_or(0)),
        SO_PRIORITY => {
            if !(0..=MOST_PRIORITY).contains(&value) && !is_privileged {
                return Err(Errno::EPERM);
            }
            options.priority.store(value, Ordering::Relaxed);
        }
        SO_MARK if !is_privileged => return Err(Errno::EPERM),
        SO_MARK => options.mark.store(value, Ordering::Relaxed),
        SO_LINGER => {
            if length < size_of::<[i32; 2]>() {
                return Err(Errno::EINVAL);
            }
            let [is_on, seconds]: [i32; 2] = call.user().read_value(address).await?;
            options.turn(SO_LINGER, is_on != 0);
            if is_on != 0 {
                options.linger_seconds.store(seconds, Ordering::Relaxed);
            }
        }
        SO_BSDCOMPAT => {}
        SO_RCVLOWAT => {
            let low_water = match value {
                0 => 1,
                ..0 => i32::MAX,
                value => value,
            };
            options.low_water.store(low_water, Ordering::Relaxed);
        }
        SO_RCVTIMEO | SO_RCVTIMEO_NEW => set_limit(call, &options.receive_limit, length).await?,
        SO_SNDTIMEO | SO_SNDTIMEO_NEW => set_limit(call, &options.send_limit, length).await?,
        SO_DETACH_FILTER => return Err(Errno::ENOENT),
        SO_PEEK_OFF => options.peek_offset.store(value, Ordering::Relaxed),
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(0)
}

/// Sets a time limit: none for zero, no waiting at all for negative times. `EDOM` for bad microseconds.
async fn set_limit(call: &Call, limit: &Limit, length: usize) -> Result<(), Errno> {
    if length < size_of::<Timeval>() {
        return Err(Errno::EINVAL);
    }
    let time: Timeval = call.user().read_value(call.argument(3)).await?;
    if !(0..1_000_000).contains(&time.microseconds) {
        return Err(Errno::EDOM);
    }
    let Ok(seconds) = u64::try_from(time.seconds) else {
        limit.set(Some(0));
        return Ok(());
    };
    let limit_ns = seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(time.microseconds.unsigned_abs() * 1000);
    limit.set(Some(limit_ns).filter(|&limit_ns| limit_ns != 0 && limit_ns != u64::MAX));
    Ok(())
}

fn limit_bytes(limit: &Limit) -> Vec<u8> {
    Timeval::from_ns(limit.get().unwrap_or(0)).as_bytes().to_vec()
}

pub async fn getsockopt(call: &Call) -> SysResult {
    let handle = Handle::new(call, 0)?;
    let (level, name, length_address) = (call.int(1), call.int(2), call.argument(4));
    if level != SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    let room: i32 = call.user().read_value(length_address).await?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let socket = &handle.socket;
    let options = socket.options();
    let relaxed = Ordering::Relaxed;
    let int = |value: i32| value.as_bytes().to_vec();
    let size = |value: usize| int(i32::try_from(value).unwrap_or(i32::MAX));
    let value = match name {
        SO_DEBUG => int(i32::from(options.is_on(name))),
        _ if SWITCHES.contains(&name) => int(i32::from(options.is_on(name))),
        SO_TYPE => int(socket.kind().number()),
        SO_PROTOCOL => int(socket.protocol()),
        SO_DOMAIN => int(socket.domain()),
        SO_ERROR => int(socket.take_error().map_or(0, |error| i32::from(error.number()))),
        SO_ACCEPTCONN => int(i32::from(socket.is_listening())),
        SO_SNDBUF => size(options.send_buffer()),
        SO_RCVBUF => size(options.receive_buffer()),
        SO_PRIORITY => int(options.priority.load(relaxed)),
        SO_MARK => int(options.mark.load(relaxed)),
        SO_BSDCOMPAT => int(0),
        SO_SNDLOWAT => int(1),
        SO_RCVLOWAT => int(options.low_water.load(relaxed)),
        SO_PEEK_OFF => int(options.peek_offset.load(relaxed)),
        SO_LINGER => {
            let is_on = i32::from(options.is_on(SO_LINGER));
            [is_on, options.linger_seconds.load(relaxed)].as_bytes().to_vec()
        }
        SO_RCVTIMEO | SO_RCVTIMEO_NEW => limit_bytes(&options.receive_limit),
        SO_SNDTIMEO | SO_SNDTIMEO_NEW => limit_bytes(&options.send_limit),
        SO_PEERCRED => {
            let nobody = UserCredentials { process: 0, user: u32::MAX, group: u32::MAX };
            socket.peer().map_or(nobody, |peer| peer.credentials).as_bytes().to_vec()
        }
        SO_PEERGROUPS => {
            let peer = socket.peer().ok_or(Errno::ENODATA)?;
            let groups = peer.groups.as_bytes();
            if room < groups.len() {
                let length = i32::try_from(groups.len()).unwrap_or(i32::MAX);
                call.user().write_value(length_address, &length).await?;
                return Err(Errno::ERANGE);
            }
            groups.to_vec()
        }
        SO_PEERNAME => {
            let name = socket.peer_name()?;
            if name.len() < room {
                return Err(Errno::EINVAL);
            }
            name
        }
        _ => return Err(Errno::ENOPROTOOPT),
    };
    let value = value.get(..room).unwrap_or(&value);
    call.user().write_bytes(call.argument(3), value).await?;
    let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
    call.user().write_value(length_address, &length).await?;
    Ok(0)
}
