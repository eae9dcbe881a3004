"""A comparison as one HTML file that needs no network: `page.py` fills `page.html`.

uPlot 1.6.32 (https://github.com/leeoniya/uPlot, MIT: uPlot.LICENSE.txt; 51 kB, embedded in the page) draws the plots
from the curves that `page.js` gives it.
"""
