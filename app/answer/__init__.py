"""What an answer is: its constraint, and what its text is taken apart into.

formats  how a family of models marks reasoning and calls, found in its chat template
prompt   a conversation as the chat template takes it
reasoning  how much an answer reasons, and what a model is told that was not taught to
tools    the functions that may be called, and the texts of calls
language the texts that an answer may be
plan     the texts that an answer may be, as a constraint, and the reader that they need
reader   the text of an answer, as it comes -> content, reasoning, calls
choice   the same with tokens, for one choice of a request -> pieces
confidence  how sure the model was of each value: tokens and scored choices -> entries
fields   its JSON values, each as soon as it is whole
locator  where the JSON values of an answer are, for the engine
"""
