"""The public views, one SELECT each, over the tables and views of a catalogue of one run or of many."""
