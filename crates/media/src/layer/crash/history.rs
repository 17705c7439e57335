//! An append-only list whose copies share their common part.

use std::sync::Arc;

struct Node<T> {
    value: T,
    previous: Option<Arc<Node<T>>>,
}

/// A list that grows at the end; a clone is O(1) whatever its length.
pub(crate) struct History<T> {
    last: Option<Arc<Node<T>>>,
    length: usize,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        History { last: None, length: 0 }
    }
}

impl<T> Clone for History<T> {
    fn clone(&self) -> Self {
        History { last: self.last.clone(), length: self.length }
    }
}

impl<T> History<T> {
    pub(crate) fn push(&mut self, value: T) {
        self.last = Some(Arc::new(Node { value, previous: self.last.take() }));
        self.length += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Values, oldest first.
    pub(crate) fn values(&self) -> Vec<&T> {
        let mut values = Vec::with_capacity(self.length);
        let mut next = &self.last;
        while let Some(node) = next {
            values.push(&node.value);
            next = &node.previous;
        }
        values.reverse();
        values
    }
}

impl<T> Drop for History<T> {
    // The derived drop would recurse once per value and overflow the stack.
    fn drop(&mut self) {
        let mut next = self.last.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.previous.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_and_long_ones_drop() {
        let mut history = History::default();
        history.push(1);
        let early = history.clone();
        for value in 2..300_000 {
            history.push(value);
        }
        assert_eq!(early.values(), [&1]);
        let values = history.values();
        assert!(values.iter().zip(1..).all(|(&&found, expected)| found == expected));
        assert_eq!(values.len(), 299_999);
        drop(history);
        assert_eq!(early.values(), [&1]);
    }
}
