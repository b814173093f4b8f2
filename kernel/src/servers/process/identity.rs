//! User and group ids: `getuid` and `setuid` with their families, and supplementary groups.

use abi::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use policy::table::number;

use crate::call::{Call, SysResult};
use crate::process::Capability;
use crate::process::credentials::{Credentials, IdSet};

/// Leaves an id as it is.
const KEEP: u32 = u32::MAX;
/// Most supplementary groups.
const GROUP_LIMIT: i32 = 65536;

pub(super) async fn serve(call: &Call) -> SysResult {
    let credentials = call.thread.credentials();
    match call.number() {
        number::getuid => Ok(u64::from(credentials.user.real)),
        number::geteuid => Ok(u64::from(credentials.user.effective)),
        number::getgid => Ok(u64::from(credentials.group.real)),
        number::getegid => Ok(u64::from(credentials.group.effective)),
        number::getresuid => write_ids(call, &credentials.user).await,
        number::getresgid => write_ids(call, &credentials.group).await,
        number::setfsuid => Ok(set_file_user(call, &credentials)),
        number::setfsgid => Ok(set_file_group(call, &credentials)),
        number::getgroups => get_groups(call, &credentials).await,
        number::setgroups => set_groups(call, &credentials).await,
        _ => change(call, &credentials),
    }
}

async fn write_ids(call: &Call, ids: &IdSet) -> SysResult {
    let user = call.user();
    user.write_value(call.argument(0), &ids.real).await?;
    user.write_value(call.argument(1), &ids.effective).await?;
    user.write_value(call.argument(2), &ids.saved).await?;
    Ok(0)
}

/// Puts changed credentials in force.
fn commit(call: &Call, old: &Credentials, new: Credentials) {
    if old.hides_from(&new) {
        call.thread.space().set_dumpable(false);
        call.thread.parent_death_signal.store(0, Ordering::Relaxed);
    }
    call.thread.set_credentials(new);
}

fn change(call: &Call, old: &Credentials) -> SysResult {
    let arguments = [call.unsigned(0), call.unsigned(1), call.unsigned(2)];
    let [first, second, third] = arguments;
    let may_set_user = old.is_capable(Capability::SetUser);
    let may_set_group = old.is_capable(Capability::SetGroup);
    let mut new = old.clone();
    match call.number() {
        number::setuid => new.set_users(set_one(&old.user, first, may_set_user)?),
        number::setgid => new.group = set_one(&old.group, first, may_set_group)?,
        number::setreuid => new.set_users(set_two(&old.user, [first, second], may_set_user)?),
        number::setregid => new.group = set_two(&old.group, [first, second], may_set_group)?,
        number::setresuid => {
            new.set_users(set_three(&old.user, [first, second, third], may_set_user)?);
        }
        number::setresgid => {
            new.group = set_three(&old.group, [first, second, third], may_set_group)?;
        }
        _ => return Err(Errno::ENOSYS),
    }
    commit(call, old, new);
    Ok(0)
}

fn set_one(ids: &IdSet, id: u32, is_privileged: bool) -> Result<IdSet, Errno> {
    if id == KEEP {
        Err(Errno::EINVAL)
    } else if is_privileged {
        Ok(IdSet::all(id))
    } else if id == ids.real || id == ids.saved {
        Ok(IdSet { effective: id, file: id, ..*ids })
    } else {
        Err(Errno::EPERM)
    }
}

fn set_two(ids: &IdSet, [real, effective]: [u32; 2], privileged: bool) -> Result<IdSet, Errno> {
    let may_be_real = real == KEEP || real == ids.real || real == ids.effective;
    let may_be_effective = effective == KEEP || ids.has(effective);
    let permitted = may_be_real && may_be_effective;
    if !(privileged || permitted) {
        return Err(Errno::EPERM);
    }
    let mut new = *ids;
    if real != KEEP {
        new.real = real;
    }
    if effective != KEEP {
        new.effective = effective;
    }
    if real != KEEP || (effective != KEEP && effective != ids.real) {
        new.saved = new.effective;
    }
    new.file = new.effective;
    Ok(new)
}

fn set_three(ids: &IdSet, wanted: [u32; 3], is_privileged: bool) -> Result<IdSet, Errno> {
    if !is_privileged && wanted.iter().any(|id| *id != KEEP && !ids.has(*id)) {
        return Err(Errno::EPERM);
    }
    let choose = |wanted: u32, old: u32| if wanted == KEEP { old } else { wanted };
    let effective = choose(wanted[1], ids.effective);
    Ok(IdSet {
        real: choose(wanted[0], ids.real),
        effective,
        saved: choose(wanted[2], ids.saved),
        file: effective,
    })
}

fn set_file_user(call: &Call, old: &Credentials) -> u64 {
    let user = call.unsigned(0);
    let is_permitted =
        old.user.has(user) || user == old.user.file || old.is_capable(Capability::SetUser);
    if user != KEEP && is_permitted && user != old.user.file {
        let mut new = old.clone();
        new.set_file_user(user);
        commit(call, old, new);
    }
    u64::from(old.user.file)
}

fn set_file_group(call: &Call, old: &Credentials) -> u64 {
    let group = call.unsigned(0);
    let is_permitted =
        old.group.has(group) || group == old.group.file || old.is_capable(Capability::SetGroup);
    if group != KEEP && is_permitted && group != old.group.file {
        let mut new = old.clone();
        new.group.file = group;
        commit(call, old, new);
    }
    u64::from(old.group.file)
}

async fn get_groups(call: &Call, credentials: &Credentials) -> SysResult {
    let room = call.int(0);
    let groups = &credentials.groups;
    if room < 0 {
        return Err(Errno::EINVAL);
    }
    if room > 0 {
        if groups.len() > usize::try_from(room).map_err(|_| Errno::EINVAL)? {
            return Err(Errno::EINVAL);
        }
        let bytes: Vec<u8> = groups.iter().flat_map(|group| group.to_le_bytes()).collect();
        call.user().write_bytes(call.argument(1), &bytes).await?;
    }
    Ok(groups.len() as u64)
}

async fn set_groups(call: &Call, old: &Credentials) -> SysResult {
    old.require(Capability::SetGroup)?;
    let count = call.int(0);
    if !(0..=GROUP_LIMIT).contains(&count) {
        return Err(Errno::EINVAL);
    }
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    // Nothing is read of a list of none.
    let mut groups: Vec<u32> = match count {
        0 => Vec::new(),
        _ => call.user().read_array(call.argument(1), count).await?,
    };
    if groups.contains(&KEEP) {
        return Err(Errno::EINVAL);
    }
    groups.sort_unstable();
    let new = Credentials { groups: Arc::from(groups), ..old.clone() };
    commit(call, old, new);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: IdSet = IdSet { real: 1, effective: 2, saved: 3, file: 2 };

    #[test]
    fn an_unprivileged_setuid_takes_real_or_saved() {
        assert_eq!(set_one(&IDS, 3, false).map(|ids| (ids.effective, ids.saved)), Ok((3, 3)));
        assert_eq!(set_one(&IDS, 4, false), Err(Errno::EPERM));
        assert_eq!(set_one(&IDS, KEEP, true), Err(Errno::EINVAL));
    }

    #[test]
    fn a_change_of_the_real_id_saves_the_effective_one() {
        assert_eq!(set_two(&IDS, [2, KEEP], false).map(|ids| ids.saved), Ok(2));
        assert_eq!(set_two(&IDS, [KEEP, 1], false).map(|ids| ids.saved), Ok(3));
        assert_eq!(set_two(&IDS, [3, KEEP], false), Err(Errno::EPERM));
    }

    #[test]
    fn three_ids_are_set_apart() {
        let new = set_three(&IDS, [KEEP, 3, 1], false);
        assert_eq!(new, Ok(IdSet { real: 1, effective: 3, saved: 1, file: 3 }));
    }
}
