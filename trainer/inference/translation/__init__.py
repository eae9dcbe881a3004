"""Lines of text to lines of text: the work behind `zeromt translate`, in one process or several."""
