# An acknowledged addition is not in the total.
232s/"amount":22/"amount":20/
