"""Does the order of the classes change the temperatures?"""
