//! Bounds the memory of texts that a server sends.

/// Cuts a text to at most `bytes`, between characters.
pub fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        for (bytes, wanted) in [(9, "a東京"), (7, "a東京"), (6, "a東"), (3, "a"), (0, "")] {
            let mut text = "a東京".to_owned();
            cut(&mut text, bytes);
            assert_eq!(text, wanted);
        }
    }
}
