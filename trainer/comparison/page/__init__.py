"""One HTML file of a comparison, which needs no network: `page.py` fills `page.html`.

The plots are drawn by uPlot 1.6.32 (https://github.com/leeoniya/uPlot, MIT: uPlot.LICENSE.txt), whose 51 kB stand in
the page: `page.js` gives it the curves.
"""
