export function pydanticModels(_schema: unknown): { code: string | null; unexpressed: string } { return { code: null, unexpressed: "not yet" }; }
