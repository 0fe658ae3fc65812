export function GraphPanel() { return null; }
