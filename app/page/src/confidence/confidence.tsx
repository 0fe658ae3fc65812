export function ConfidencePanel() { return null; }
