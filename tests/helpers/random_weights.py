"""Configs without weights from the internet."""


def without_downloads(cfg):
    """Set random weights in place of published ones, at every depth."""
    if isinstance(cfg, dict):
        start = cfg.get('init_cfg')
        if isinstance(start, dict) and start.get('type') == 'Pretrained':
            cfg['init_cfg'] = None
        for value in cfg.values():
            without_downloads(value)
    elif isinstance(cfg, list | tuple):
        for value in cfg:
            without_downloads(value)
