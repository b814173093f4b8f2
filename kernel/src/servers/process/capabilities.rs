//! `capget` and `capset`.

use abi::Errno;
use abi::process::{
    CAPABILITY_VERSION_1, CAPABILITY_VERSION_2, CAPABILITY_VERSION_3, CapabilityData,
    CapabilityHeader,
};

use crate::call::{Call, SysResult};
use crate::process::credentials::{ALL_CAPABILITIES, Capability, CapabilitySets};
use crate::process::{Tid, table};

/// Number of data records of a version; writes the preferred version back for an unknown one.
async fn record_count(call: &Call, header: &CapabilityHeader) -> Result<usize, Errno> {
    match header.version {
        CAPABILITY_VERSION_1 => Ok(1),
        CAPABILITY_VERSION_2 | CAPABILITY_VERSION_3 => Ok(2),
        _ => {
            call.user().write_value(call.argument(0), &CAPABILITY_VERSION_3).await?;
            Err(Errno::EINVAL)
        }
    }
}

fn halves(set: u64) -> [u32; 2] {
    [set as u32, (set >> 32) as u32]
}

pub(super) async fn capget(call: &Call) -> SysResult {
    let header: CapabilityHeader = call.user().read_value(call.argument(0)).await?;
    let count = match record_count(call, &header).await {
        // Asking only for the version is no error.
        Err(Errno::EINVAL) if call.argument(1) == 0 => return Ok(0),
        count => count?,
    };
    if header.pid < 0 {
        return Err(Errno::EINVAL);
    }
    let credentials = match header.pid {
        0 => call.thread.credentials(),
        pid => table::thread_or_init(Tid(pid)).ok_or(Errno::ESRCH)?.credentials(),
    };
    if call.argument(1) == 0 {
        return Ok(0);
    }
    let sets = &credentials.capabilities;
    let (effective, permitted, inheritable) =
        (halves(sets.effective), halves(sets.permitted), halves(sets.inheritable));
    let records: [CapabilityData; 2] = core::array::from_fn(|index| CapabilityData {
        effective: effective[index],
        permitted: permitted[index],
        inheritable: inheritable[index],
    });
    if count == 1 {
        call.user().write_value(call.argument(1), &records[0]).await?;
    } else {
        call.user().write_value(call.argument(1), &records).await?;
    }
    Ok(0)
}

pub(super) async fn capset(call: &Call) -> SysResult {
    let header: CapabilityHeader = call.user().read_value(call.argument(0)).await?;
    let count = record_count(call, &header).await?;
    if header.pid != 0 && Tid(header.pid) != call.thread.tid() {
        return Err(Errno::EPERM);
    }
    let records: alloc::vec::Vec<CapabilityData> =
        call.user().read_array(call.argument(1), count).await?;
    let whole = |part: fn(&CapabilityData) -> u32| {
        records
            .iter()
            .enumerate()
            .fold(0, |set, (index, record)| set | u64::from(part(record)) << (32 * index))
            & ALL_CAPABILITIES
    };
    let effective = whole(|record| record.effective);
    let permitted = whole(|record| record.permitted);
    let inheritable = whole(|record| record.inheritable);
    let old = call.thread.credentials();
    let sets = &old.capabilities;
    let limit = if old.is_capable(Capability::SetCapabilities) {
        sets.inheritable | sets.bounding
    } else {
        sets.inheritable | sets.permitted
    };
    if inheritable & !(limit & (sets.inheritable | sets.bounding)) != 0
        || permitted & !sets.permitted != 0
        || effective & !permitted != 0
    {
        return Err(Errno::EPERM);
    }
    let mut new = (*old).clone();
    new.capabilities = CapabilitySets {
        effective,
        permitted,
        inheritable,
        ambient: sets.ambient & permitted & inheritable,
        bounding: sets.bounding,
    };
    call.thread.set_credentials(new);
    Ok(0)
}
