//! Packets of a server's answers, for the rogue servers of unit tests and trials.

/// End of columns or rows.
pub const END: &[u8] = b"\xfe\0\0\x02\0";

/// A packet with its length and number.
pub fn framed(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = (payload.len() as u32).to_le_bytes().to_vec();
    packet[3] = sequence;
    packet.extend_from_slice(payload);
    packet
}

/// A text with its length.
pub fn text(text: &[u8]) -> Vec<u8> {
    let length = text.len() as u32;
    let mut bytes = match length {
        0..=250 => vec![length as u8],
        _ => [b"\xfd", &length.to_le_bytes()[..3]].concat(),
    };
    bytes.extend_from_slice(text);
    bytes
}

/// Definition of a text column.
pub fn column() -> Vec<u8> {
    let words = ["def", "", "", "", "a", ""].map(|word| text(word.as_bytes()));
    let rest = [12, 45, 0, 0, 4, 0, 0, 253, 0, 0, 0, 0, 0];
    [&words.concat()[..], &rest].concat()
}
