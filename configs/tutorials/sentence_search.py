"""Search across two made languages: three losses of mmrank, and a stock one."""
import random

import sentence_transformers as st
import torch
from datasets import Dataset
from sentence_transformers.sentence_transformer import losses, modules

from mmrank.adapters import SentenceContrastLoss, SentenceRetrievalLoss
from mmrank.losses import BimodalISogCLRLoss, InfoNCELoss, StableAPLoss


def make_texts(n, seed):
    """Queries of 6 words; documents translate 3 of them, among 3 others."""
    words = [random.Random(seed + i).sample(range(400), 9) for i in range(n)]
    return Dataset.from_dict(dict(
        query=[' '.join(f'a{w}' for w in row[:6]) for row in words],
        document=[' '.join(f'b{w}' for w in row[3:]) for row in words],
        label=range(n)))                        # the index of each row


def train(name, make_loss):
    torch.manual_seed(0)
    bag = modules.BoW([f'{language}{w}' for language in 'ab' for w in range(400)])
    model = st.SentenceTransformer(modules=[bag, modules.Dense(800, 64)], device='cpu')
    args = st.SentenceTransformerTrainingArguments(
        'work_dirs/sentences', num_train_epochs=5, per_device_train_batch_size=64,
        learning_rate=1e-2, use_cpu=True, report_to=[], disable_tqdm=True)
    data, test = make_texts(2000, 0), make_texts(500, 9999)
    st.SentenceTransformerTrainer(model, args, data, loss=make_loss(model)).train()
    scores = model.similarity(model.encode(test['query']), model.encode(test['document']))
    print(f'{name} Recall@1 {(scores.argmax(1) == torch.arange(500)).float().mean():.3f}')


isogclr = BimodalISogCLRLoss(2000, rho=3.0, tau_init=0.05, tau0=0.02, tau_max=0.2)
train('own:      ', lambda model: losses.MultipleNegativesRankingLoss(model))
train('InfoNCE:  ', lambda model: SentenceContrastLoss(model, InfoNCELoss(0.05, bimodal=True)))
train('iSogCLR:  ', lambda model: SentenceContrastLoss(model, isogclr))
train('stable AP:', lambda model: SentenceRetrievalLoss(model, StableAPLoss()))
