"""Numbers in decimal digits, as expressions.

ranges      integers between two bounds
decimals    numbers with a fraction, or an exponent
multiples   what a division leaves, digit by digit
exclusions  numbers without the integers, the multiples or single values
"""
