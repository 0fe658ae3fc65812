export function Code() { return null; }
