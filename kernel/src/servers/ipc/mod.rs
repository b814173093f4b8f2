//! Calls of class ipc: futexes, and the objects of System V. Pipes are of this class too; their handlers
//! are with the files.

mod futex;
mod mqueue;
mod msg;
mod sem;
mod shm;

use policy::table::number;

use crate::call::{self, Call, SysResult};

pub use futex::{continue_futex_wait, wake_at_once};

/// Carries out a call of this class.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::futex => futex::futex(call).await,
        number::futex_waitv => futex::futex_waitv(call).await,
        number::shmget => shm::shmget(call),
        number::shmat => shm::shmat(call).await,
        number::shmdt => shm::shmdt(call).await,
        number::shmctl => shm::shmctl(call).await,
        number::semget => sem::semget(call),
        number::semop => sem::semop(call).await,
        number::semtimedop => sem::semtimedop(call).await,
        number::semctl => sem::semctl(call).await,
        number::msgget => msg::msgget(call),
        number::msgsnd => msg::msgsnd(call).await,
        number::msgrcv => msg::msgrcv(call).await,
        number::msgctl => msg::msgctl(call).await,
        number::mq_open => mqueue::mq_open(call).await,
        number::mq_unlink => mqueue::mq_unlink(call).await,
        number::mq_timedsend => mqueue::mq_timedsend(call).await,
        number::mq_timedreceive => mqueue::mq_timedreceive(call).await,
        number::mq_notify => mqueue::mq_notify(call).await,
        number::mq_getsetattr => mqueue::mq_getsetattr(call).await,
        number::pipe => super::file::pipe(call).await,
        number::pipe2 => super::file::pipe2(call).await,
        _ => Err(call::unknown(call.number())),
    }
}
