//! Doubly linked lists of pages, as arrays: a page is in one list at most, and moves between them in constant time.

/// No list.
const NONE: u8 = u8::MAX;

pub struct Lists {
    /// For each page, and after them for the head of each list: the neighbours. A list is a ring through its head.
    next: Vec<u32>,
    previous: Vec<u32>,
    list: Vec<u8>,
    lengths: Vec<usize>,
}

impl Lists {
    /// Empty lists for this number of pages.
    pub fn new(pages: usize, lists: usize) -> Lists {
        debug_assert!(lists < usize::from(NONE) && pages + lists <= u32::MAX as usize);
        let own: Vec<u32> = (0..(pages + lists) as u32).collect();
        Lists {
            next: own.clone(),
            previous: own,
            list: vec![NONE; pages],
            lengths: vec![0; lists],
        }
    }

    fn head(&self, list: usize) -> usize {
        self.list.len() + list
    }

    /// The list that contains the page.
    pub fn of(&self, page: u32) -> Option<usize> {
        let list = self.list[page as usize];
        (list != NONE).then_some(usize::from(list))
    }

    pub fn len(&self, list: usize) -> usize {
        self.lengths[list]
    }

    /// The page at the end of the list: the one that was inserted first.
    pub fn last(&self, list: usize) -> Option<u32> {
        (self.lengths[list] > 0).then(|| self.previous[self.head(list)])
    }

    /// Moves the page to the front of the list, from any list.
    pub fn put(&mut self, page: u32, list: usize) {
        self.remove(page);
        let (at, head) = (page as usize, self.head(list));
        let second = self.next[head];
        self.next[at] = second;
        self.previous[at] = head as u32;
        self.previous[second as usize] = page;
        self.next[head] = page;
        self.list[at] = list as u8;
        self.lengths[list] += 1;
    }

    /// Removes the page from its list, if it is in any.
    pub fn remove(&mut self, page: u32) {
        let at = page as usize;
        if let Some(list) = self.of(page) {
            let (before, behind) = (self.previous[at], self.next[at]);
            self.next[before as usize] = behind;
            self.previous[behind as usize] = before;
            self.list[at] = NONE;
            self.lengths[list] -= 1;
        }
    }

    /// Removes the last page of the list.
    pub fn pop(&mut self, list: usize) -> Option<u32> {
        let page = self.last(list)?;
        self.remove(page);
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn lists_are_what_queues_would_be() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut lists = Lists::new(20, 3);
        let mut model: [VecDeque<u32>; 3] = Default::default();
        for _ in 0..10_000 {
            let (page, list) = (random.u32(..20), random.usize(..3));
            match random.u8(..4) {
                0 => {
                    let popped = model[list].pop_back();
                    assert_eq!(lists.pop(list), popped);
                }
                1 => {
                    model
                        .iter_mut()
                        .for_each(|queue| queue.retain(|p| *p != page));
                    lists.remove(page);
                }
                _ => {
                    model
                        .iter_mut()
                        .for_each(|queue| queue.retain(|p| *p != page));
                    model[list].push_front(page);
                    lists.put(page, list);
                }
            }
            for (n, queue) in model.iter().enumerate() {
                assert_eq!(lists.len(n), queue.len());
                assert_eq!(lists.last(n), queue.back().copied());
            }
            let place = model.iter().position(|queue| queue.contains(&page));
            assert_eq!(lists.of(page), place);
        }
    }
}
