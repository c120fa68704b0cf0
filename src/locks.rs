//! Locks. In debug builds each thread counts those that it holds: a request over a network must hold
//! none, since it calls Python, which may call back.

#[cfg(not(debug_assertions))]
use std::time::Duration;

#[cfg(not(debug_assertions))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

#[cfg(debug_assertions)]
pub use self::counted::{Mutex, MutexGuard, RwLock, RwLockReadGuard, wait_for};
pub use parking_lot::Condvar;

/// Waits until notified, or so long; the lock is free meanwhile.
#[cfg(not(debug_assertions))]
pub fn wait_for<T>(condition: &Condvar, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
    condition.wait_for(guard, timeout);
}

/// Panics in a debug build if this thread holds a lock.
pub fn assert_none_held() {
    #[cfg(debug_assertions)]
    counted::HELD.with(|held| assert_eq!(held.get(), 0, "locks are held during a request"));
}

#[cfg(debug_assertions)]
mod counted {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    use parking_lot::Condvar;

    thread_local! {
        pub(super) static HELD: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(Debug)]
    struct Held;

    impl Held {
        fn new() -> Self {
            HELD.with(|held| held.set(held.get() + 1));
            Self
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // A guard may be dropped while its thread ends.
            let _ = HELD.try_with(|held| held.set(held.get() - 1));
        }
    }

    #[derive(Debug)]
    pub struct Guard<G>(G, Held);

    pub type MutexGuard<'a, T> = Guard<parking_lot::MutexGuard<'a, T>>;
    pub type RwLockReadGuard<'a, T> = Guard<parking_lot::RwLockReadGuard<'a, T>>;
    pub type RwLockWriteGuard<'a, T> = Guard<parking_lot::RwLockWriteGuard<'a, T>>;

    pub fn wait_for<T>(condition: &Condvar, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        condition.wait_for(&mut guard.0, timeout);
    }

    impl<G: Deref> Deref for Guard<G> {
        type Target = G::Target;

        fn deref(&self) -> &G::Target {
            &self.0
        }
    }

    impl<G: DerefMut> DerefMut for Guard<G> {
        fn deref_mut(&mut self) -> &mut G::Target {
            &mut self.0
        }
    }

    #[derive(Debug, Default)]
    pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    impl<T: ?Sized> Mutex<T> {
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            Guard(self.0.lock(), Held::new())
        }

        pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock_for(timeout).map(|guard| Guard(guard, Held::new()))
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().map(|guard| Guard(guard, Held::new()))
        }
    }

    #[derive(Debug, Default)]
    pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        pub const fn new(value: T) -> Self {
            Self(parking_lot::RwLock::new(value))
        }
    }

    impl<T: ?Sized> RwLock<T> {
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            Guard(self.0.read(), Held::new())
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            Guard(self.0.write(), Held::new())
        }
    }
}
