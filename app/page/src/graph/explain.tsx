export function ExplainPanel() { return null; }
