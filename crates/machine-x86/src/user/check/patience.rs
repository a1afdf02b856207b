//! Waiting in ring 3: spin a little, then let others run.

/// Attempts before others are let run.
const SPINS: u32 = 200;

/// A way to wait for something that another task does soon.
pub trait Patience {
    /// Let other tasks run.
    fn give_way(&self);

    /// Wait until `attempt` succeeds.
    fn until(&self, attempt: &mut dyn FnMut() -> bool) {
        loop {
            for _ in 0..SPINS {
                if attempt() {
                    return;
                }
                core::hint::spin_loop();
            }
            self.give_way();
        }
    }
}

impl<F: Fn()> Patience for F {
    fn give_way(&self) {
        self();
    }
}

/// Read what a lock guards.
pub fn read<'a, T>(lock: &'a spin::RwLock<T>, patience: &dyn Patience) -> spin::RwLockReadGuard<'a, T> {
    let mut guard = None;
    patience.until(&mut || {
        guard = lock.try_read();
        guard.is_some()
    });
    guard.expect("just taken")
}

/// Change what a lock guards. New readers are kept out as soon as a writer waits.
pub fn write<'a, T>(lock: &'a spin::RwLock<T>, patience: &dyn Patience) -> spin::RwLockWriteGuard<'a, T> {
    let mut waiting = None;
    patience.until(&mut || {
        waiting = lock.try_upgradeable_read();
        waiting.is_some()
    });
    let mut guard = None;
    patience.until(&mut || match waiting.take().expect("put back below").try_upgrade() {
        Ok(writer) => {
            guard = Some(writer);
            true
        }
        Err(reader) => {
            waiting = Some(reader);
            false
        }
    });
    guard.expect("just taken")
}

/// Take a lock that one task holds at a time.
pub fn lock<'a, T>(mutex: &'a spin::Mutex<T>, patience: &dyn Patience) -> spin::MutexGuard<'a, T> {
    let mut guard = None;
    patience.until(&mut || {
        guard = mutex.try_lock();
        guard.is_some()
    });
    guard.expect("just taken")
}
