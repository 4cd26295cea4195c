"""Stable AP in Lightning. Run it twice: the second run resumes the first."""

from pathlib import Path

import torch
from lightning import LightningModule, Trainer, seed_everything
from torch.utils.data import DataLoader, TensorDataset

from mmrank.functional import average_precision
from mmrank.losses import StableAPLoss


class Ranker(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(20, 1)
        self.loss = StableAPLoss()  # a submodule: its state is saved

    def training_step(self, batch, _):
        return self.loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.net.parameters(), lr=1e-2)

    def on_train_start(self):
        print('state', {k: v.tolist() for k, v in self.loss.state_dict().items()})
    on_train_end = on_train_start


FILE = 'work_dirs/lightning/last.ckpt'
seed_everything(0)
x, y = torch.randn(4096, 20), (torch.rand(4096, 1) < 0.03).float()
x += 0.3 * y  # positives are shifted
model, resume = Ranker(), FILE if Path(FILE).exists() else None
trainer = Trainer(
    max_epochs=10 if resume else 5, accelerator='cpu', logger=False,
    default_root_dir='work_dirs/lightning')
trainer.fit(model, DataLoader(TensorDataset(x, y), 256, shuffle=True), ckpt_path=resume)
trainer.save_checkpoint(FILE)
print(f'AP {average_precision(model.net(x)[:, 0], y[:, 0] > 0):.6f}')
