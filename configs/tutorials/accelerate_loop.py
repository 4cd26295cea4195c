"""Stable AP with accelerate. Run it twice: the second run resumes the first."""

from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

from mmrank.functional import average_precision
from mmrank.losses import StableAPLoss

FOLDER = 'work_dirs/accelerate'

set_seed(0)
x, y = torch.randn(4096, 20), (torch.rand(4096, 1) < 0.03).float()
x += 0.3 * y  # positives are shifted
accelerator = Accelerator(cpu=True)
# 256 samples in all: the scores of all processes form one ranking.
loader = DataLoader(
    TensorDataset(x, y), 256 // accelerator.num_processes, shuffle=True,
    generator=torch.Generator().manual_seed(0))
net = torch.nn.Linear(20, 1)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
loss_function = StableAPLoss()
accelerator.register_for_checkpointing(loss_function)  # its moving averages
if Path(FOLDER).exists():
    accelerator.load_state(FOLDER)
state = loss_function.state_dict()  # its buffers, not copies
accelerator.print('state', {k: v.tolist() for k, v in state.items()})
for epoch in range(5):
    for features, targets in loader:
        loss = loss_function(net(features), targets)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
accelerator.save_state(FOLDER)
accelerator.print('state', {k: v.tolist() for k, v in state.items()})
accelerator.print(f'AP {average_precision(net(x)[:, 0], y[:, 0] > 0):.6f}')
