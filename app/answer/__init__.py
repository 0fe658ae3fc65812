"""What a model writes in a conversation besides prose: reasoning and tool calls.

formats     how a family of models marks them, found in its chat template
prompts     a conversation as the chat template takes it
language    the texts that an answer may be, as a constraint
reader      the text of an answer, as it comes -> content, reasoning, calls
"""
