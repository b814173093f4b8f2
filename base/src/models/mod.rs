//! Models of the lock-free algorithms: loom runs each in every order of events that the memory model
//! allows (up to a bound on preemptions where there are too many). Run them with
//! `RUSTFLAGS="--cfg loom" cargo test -p base --release --lib loom`.

mod mutex;
mod posted;
mod presence;
mod ring;
mod scheme;
mod task;
mod wait;

/// Whether the model of something that is known to be wrong fails as expected. A model that cannot fail
/// proves nothing.
fn finds(message: &str, model: impl Fn() + Sync + Send + std::panic::UnwindSafe + 'static) {
    let failure =
        std::panic::catch_unwind(|| bounded(2, model)).expect_err("the model does not fail");
    let said = failure.downcast_ref::<&str>().map(|said| said.to_string());
    let said = said.or_else(|| failure.downcast_ref::<String>().cloned()).unwrap_or_default();
    assert!(said.contains(message), "it fails with {said:?}");
}

/// Runs a model with at most `preemptions` switches between threads that could have gone on.
fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Spinning takes turns, more than loom expects.
    builder.max_branches = 20_000;
    builder.check(model);
}
