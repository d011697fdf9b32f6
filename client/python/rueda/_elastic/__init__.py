"""Implements what the elastic modules of Horovod's front ends have in common: states, and the loop that begins again from them."""
