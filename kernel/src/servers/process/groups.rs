//! `setpgid`, `setsid` and their getters.

use crate::call::{Call, SysResult};
use crate::process::{Pid, session};

pub(super) fn getpgid(call: &Call) -> SysResult {
    Ok(session::find(call.process(), call.int(0))?.group().to_value())
}

pub(super) fn setpgid(call: &Call) -> SysResult {
    session::set_group(call.process(), Pid(call.int(0)), Pid(call.int(1)))?;
    Ok(0)
}

pub(super) fn getsid(call: &Call) -> SysResult {
    Ok(session::find(call.process(), call.int(0))?.session().to_value())
}

pub(super) fn setsid(call: &Call) -> SysResult {
    Ok(session::start_session(call.process())?.to_value())
}
