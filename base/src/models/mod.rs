//! Models of the lock-free algorithms: loom runs each in every order of events that the memory model
//! allows (up to a bound on preemptions where there are too many). Run them with
//! `RUSTFLAGS="--cfg loom" cargo test -p base --release --lib loom`.

mod mutex;
mod posted;
mod presence;
mod ring;
mod task;
mod wait;

/// Runs a model with at most `preemptions` switches between threads that could have gone on.
fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Spinning takes turns, more than loom expects.
    builder.max_branches = 20_000;
    builder.check(model);
}
