//! The switch between a virtual thread and the loop that runs them: the one place that trusts a pointer.
//!
//! A virtual thread is a coroutine. It gives way through what `corosensei` hands it when it begins; a pointer to that
//! is kept with the thread, because an atomic deep in the program has no other way to reach it.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::mem::ManuallyDrop;

/// How a thread gives way; null before it has begun.
#[derive(Clone, Copy)]
pub(crate) struct Handle(*const Yielder<(), ()>);

impl Default for Handle {
    fn default() -> Handle {
        Handle(std::ptr::null())
    }
}

thread_local! {
    /// Of the virtual thread that runs now; null if none does.
    static CURRENT: Cell<Handle> = const { Cell::new(Handle(std::ptr::null())) };
}

/// A virtual thread's stack and where it stands. Dropping one that has not ended leaks it: its frames
/// may hold locks of others, and are never run again.
pub(crate) struct Fiber(ManuallyDrop<Coroutine<(), (), (), DefaultStack>>);

impl Fiber {
    /// `body` gets the handle, and must not unwind.
    ///
    /// # Errors
    /// The system has no memory for the stack.
    pub(crate) fn new(
        stack_bytes: usize,
        body: impl FnOnce(Handle) + 'static,
    ) -> std::io::Result<Fiber> {
        let stack = DefaultStack::new(stack_bytes)?;
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            let handle = Handle(std::ptr::from_ref(yielder));
            CURRENT.set(handle);
            body(handle);
        });
        Ok(Fiber(ManuallyDrop::new(coroutine)))
    }

    /// Runs the thread until it gives way (false) or ends (true).
    pub(crate) fn resume(&mut self, handle: Handle) -> bool {
        CURRENT.set(handle);
        let result = self.0.resume(());
        CURRENT.set(Handle::default());
        matches!(result, CoroutineResult::Return(()))
    }

    /// Frees the stack of a thread that has ended.
    pub(crate) fn free(self) {
        if self.0.done() {
            drop(ManuallyDrop::into_inner(self.0));
        }
    }
}

/// The virtual thread that runs now gives way. Nothing happens outside of one.
#[inline]
pub(crate) fn give_way() {
    let Handle(yielder) = CURRENT.get();
    if yielder.is_null() {
        return;
    }
    // SAFETY: `CURRENT` is set to a thread's own handle just before that thread runs, and to null when it stops. So this code
    // runs on the stack of the coroutine that the yielder belongs to. The yielder lives as long as the coroutine's closure
    // runs, which this call is part of, and it is used by this coroutine alone.
    unsafe { (*yielder).suspend(()) };
}
