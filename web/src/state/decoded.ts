/** A part of an address as it was before it was encoded; as it stands when it is not well encoded. */
export function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
