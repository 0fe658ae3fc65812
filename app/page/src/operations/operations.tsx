export function Operations() { return null; }
