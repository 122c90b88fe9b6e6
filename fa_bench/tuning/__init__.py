"""Which tile suits a shape on a GPU: what can be tried, what is known of each, what follows.

`tiles.py` lists the tiles and says why others are out, `rules.py` has the rules that papers and packages choose by,
`counts.py` runs a tile on small cases and scales what was counted, `predict.py` puts that into a time, `rank.py` orders
and gives reasons, `run.py` goes through it all with the backends that it is handed. Nothing here knows tables, files or
how a figure is shown.
"""
