# An addition of 3 is twice in the total.
232s/"amount":22/"amount":25/
