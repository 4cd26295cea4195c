"""Losses with one fault each, by torch alone, and the check of mmrank.testing that finds it."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, normalize


def writes_into_scores(scores, labels):
    scores.data -= scores.data.mean(0)
    return cross_entropy(scores, labels)


CALLS = []


def counts_calls(scores, labels):
    CALLS.append(0)
    return len(CALLS) * cross_entropy(scores, labels)


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keep):
        ctx.save_for_backward(x)
        ctx.keep = keep
        return x.square().mean()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        slope = 2 * x.detach() / x.numel()
        return (grad * slope if ctx.keep else slope), None


def weighs_by_position(scores, labels):
    each = cross_entropy(scores, labels, reduction='none')
    return (each * torch.arange(len(each))).mean()


def mean_of_positives(scores, labels):
    return scores.neg().exp()[labels == 1].mean()


def exponential(scores, labels):
    return scores.exp().sum(1).log().mean() - scores.gather(1, labels[:, None]).mean()


def upside_down(scores, labels):
    return -cross_entropy(scores, labels)


def cosines(x, labels):
    unit = normalize(x)
    return 1e3 * (1 - (unit @ unit.t()).diagonal()).abs().mean() + x.square().mean()


class Underflows(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('least', torch.tensor(1e-60, dtype=torch.float64))

    def forward(self, scores, labels):
        return cross_entropy(scores, labels) - self.least.log()


class RunningMean(nn.Module):
    """Divides by a mean over steps, which it updates in each call."""

    is_saved = True

    def __init__(self):
        super().__init__()
        mean = torch.ones((), dtype=torch.float64)
        if self.is_saved:
            self.register_buffer('mean', mean)
        else:
            self.mean = mean

    def forward(self, scores, labels):
        value = cross_entropy(scores, labels)
        self.mean = 0.5 * self.mean + 0.5 * value.detach().to(self.mean)
        return value / self.mean


class UnsavedMean(RunningMean):
    is_saved = False


class SharedMean(RunningMean):
    def __deepcopy__(self, memo):
        return self


def divided_by_length(x, labels):
    return (x / (x.norm(dim=1, keepdim=True) + 1e-12)).sum(1).mean()


def looks_at_values(scores, labels):
    return scores.square().mean() * float(scores.detach().numpy().max() > -9)


class OtherOnMeta(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2.0 if torch.ones(()).is_meta else 1.0

    def forward(self, scores, labels):
        return cross_entropy(scores, labels) * self.factor


class ForgetfulMean(RunningMean):
    def __reduce__(self):
        return ForgetfulMean, ()


def doubles_when_compiled(scores, labels):
    return cross_entropy(scores, labels) * (2 if torch.compiler.is_compiling() else 1)


def needs_the_whole_batch(x, labels):
    return x.flatten().logsumexp(0)


def mean_of_rows(x, labels):
    return x.square().mean()


def all_triplets(x, labels):
    s = x @ x.t()
    return (s[:, :, None] - s[:, None, :] + 1).relu().mean()


def one_row_at_a_time(scores, labels):
    return sum(cross_entropy(scores[i : i + 1], labels[i : i + 1]) for i in range(len(scores)))


def soft_average_precision(scores, labels, tau=1.0):
    above = ((scores - scores[:, None]) / tau).sigmoid()
    above = above * (1 - torch.eye(len(scores), dtype=scores.dtype))
    positive = labels.to(scores)
    precision = (1 + above @ positive) / (1 + above.sum(1))
    return 1 - (precision * positive).sum() / positive.sum()


#: Check: a loss of scores ``s`` or embeddings ``x`` and labels ``y`` that fails it, and its call.
BROKEN = {
    'value': (lambda s, y: s.sum() / 0, 'scores'),
    'inputs_untouched': (lambda s, y: cross_entropy(s, y.clamp_(max=1)), 'scores'),
    'same_twice': (counts_calls, 'scores'),
    'derivative': (lambda s, y: (s.sigmoid().detach() * s.square()).mean(), 'scores'),
    'grad_output': (lambda s, y: _Square.apply(s, False), 'scores'),
    'second_derivative': (lambda s, y: _Square.apply(s, True), 'scores'),
    'function_transform': (looks_at_values, 'scores'),
    'permutation': (weighs_by_position, 'scores'),
    'strided': (lambda s, y: cross_entropy(s.as_strided(s.shape, (s.size(1), 1)), y), 'scores'),
    'expanded': (writes_into_scores, 'scores'),
    'ties': (lambda x, y: (x[1:] - x[:-1]).square().sum(-1).sqrt().mean(), 'embeddings'),
    'zero_row': (divided_by_length, 'embeddings'),
    'one_element': (lambda s, y: s.std(0).mean(), 'scores'),
    'no_element': (cross_entropy, 'scores'),
    'no_positives': (mean_of_positives, 'binary'),
    'all_positives': (lambda s, y: s.exp()[y == 0].mean(), 'binary'),
    'nan_is_shown': (lambda s, y: cross_entropy(s.nan_to_num(), y), 'scores'),
    'infinities': (binary_cross_entropy_with_logits, 'numbers'),
    'large_numbers': (exponential, 'scores'),
    'perfect_is_better': (upside_down, 'scores'),
    'label_dtypes': (lambda s, y: (-(2 * y - 1) * s).exp().mean() + (-y).to(s).mean(), 'binary'),
    'float32': (lambda s, y: (s.sigmoid() * 1e-46).log().mean() + cross_entropy(s, y), 'scores'),
    'float16': (lambda s, y: -(s.neg().sigmoid() ** 20 + 1e-8).log().mean(), 'scores'),
    'bfloat16': (lambda s, y: (1000 + s.square().mean()) - 1000, 'scores'),
    'autocast': (cosines, 'embeddings'),
    'computes_in_float32': (cross_entropy, 'scores'),
    'moved_to_another_dtype': (Underflows, 'scores'),
    'deepcopy': (SharedMean, 'scores'),
    'pickle': (ForgetfulMean, 'scores'),
    'state_dict': (UnsavedMean, 'scores'),
    'evaluation': (RunningMean, 'scores'),
    'value_alone': (RunningMean, 'scores'),
    'built_on_meta': (OtherOnMeta, 'scores'),
    'checkpointing': (RunningMean, 'scores'),
    'compile': (doubles_when_compiled, 'scores'),
    'meta': (lambda s, y: s.square().mean()[None] if s.is_meta else s.square().mean(), 'scores'),
    'two_ranks': (needs_the_whole_batch, 'embeddings'),
    'three_ranks': (needs_the_whole_batch, 'embeddings'),
    'uneven_ranks': (mean_of_rows, 'embeddings'),
    'rank_without_positives': (mean_of_positives, 'binary'),
    'memory': (all_triplets, 'embeddings'),
    'loops': (one_row_at_a_time, 'scores'),
    'metric': (soft_average_precision, 'binary'),
}
