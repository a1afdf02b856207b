//! Waiting in ring 3: spin briefly, then yield.

/// Attempts before yielding.
const SPINS: u32 = 200;

/// A way to wait for another task.
pub trait Backoff {
    /// Let other tasks run.
    fn yield_now(&self);

    /// Wait until `attempt` succeeds.
    fn until(&self, attempt: &mut dyn FnMut() -> bool) {
        loop {
            for _ in 0..SPINS {
                if attempt() {
                    return;
                }
                core::hint::spin_loop();
            }
            self.yield_now();
        }
    }
}

impl<F: Fn()> Backoff for F {
    fn yield_now(&self) {
        self();
    }
}

/// Take a lock shared.
pub fn read<'a, T>(lock: &'a spin::RwLock<T>, backoff: &dyn Backoff) -> spin::RwLockReadGuard<'a, T> {
    let mut guard = None;
    backoff.until(&mut || {
        guard = lock.try_read();
        guard.is_some()
    });
    guard.expect("the lock must be held")
}

/// Take a lock exclusively. A waiting writer keeps new readers out.
pub fn write<'a, T>(lock: &'a spin::RwLock<T>, backoff: &dyn Backoff) -> spin::RwLockWriteGuard<'a, T> {
    let mut waiting = None;
    backoff.until(&mut || {
        waiting = lock.try_upgradeable_read();
        waiting.is_some()
    });
    let mut guard = None;
    backoff.until(
        &mut || match waiting.take().expect("a failed upgrade must return the reader").try_upgrade() {
            Ok(writer) => {
                guard = Some(writer);
                true
            }
            Err(reader) => {
                waiting = Some(reader);
                false
            }
        },
    );
    guard.expect("the lock must be held")
}

/// Take a mutex.
pub fn lock<'a, T>(mutex: &'a spin::Mutex<T>, backoff: &dyn Backoff) -> spin::MutexGuard<'a, T> {
    let mut guard = None;
    backoff.until(&mut || {
        guard = mutex.try_lock();
        guard.is_some()
    });
    guard.expect("the lock must be held")
}
