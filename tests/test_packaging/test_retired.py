"""What a user gets who still names what mmrank had, and no page names it any more."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from mmrank import losses, retired
from mmrank.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
#: Words of what is gone that no table of ``mmrank.retired`` has: modules, files, options of tools.
MORE_WORDS = """
embed_rows
embedding_in_chunks
num_buckets
num_hashes
RotatedRetinaHead
RotatedATSSHead
carafe_naive_forward
masked_col2im_forward
pointwise_loss
LaECE
paired_iou
SigmoidSSD
JointMapTargets
JointMapPredictions
image_text_shards
index_stream
index_tars
IndexedCaptions
img_bytes
shard_sampler
tar_shard
gallery_index
GalleryIndex
gallery_past_memory
StoredFeatures
approximate_recall
neighbours_found
fixed_and_pooled_ap
AP-fixed
AP-pool
federated_cost
build_release
folded_centres
--look-up
sets_on_record
archive_source
ArchiveLimits
--max-gigabytes
--max-members
--max-ratio
loss_checks_scripts
FolderLock
FolderHeldError
lock_work_dir
call_at_end
_CLOCKS_DIFFER
_is_left_behind
accumulated_gradients
accumulates_gradients
load_from_ceph
petrel
_StandIn
shard_files
row_route
rows_in_flight
sharded_state_cost
ShardedState
save_shard
load_shards
prefetch
SlowLink
storage='host
storage='sharded
flexible_runner
fsdp_strategy
gather_checkpoint
load_sharded
save_sharded
recover_folders
pointed_foreign_folder
is_sharded
has_global_state
sharded_embedding_tower
shard_like
sharded_parameters
sharded_tables
ShardedTablesParallel
forked
start_fork_server
memory_gb
cold_paths
per_positive_loops
pairwise_speed
detr_step
adapter_step
grad_cache_step
in_batch_speed
mmcv_configs
memory_peak
train_command
allow_empty
include_seen
p_wilcoxon
find_evaluators
lam_pos
HistoryLoss
history_loss
SampleThresholds
SampleTilts
weighted_sums
StreamingFrequency
takes_labels
check_submission
wire_bytes
SlurmExecutor
LocalExecutor
executor_options
live_progress
error_door
check_config_file
STOCK_SETTINGS
""".split()  # noqa: SIM905
#: Types that mmengine has, too.
NAMES_OF_MMENGINE = ('FSDPStrategy', 'FlexibleRunner')
#: The one page that says what went.
CHANGES = ('CHANGELOG.md', 'mmrank/retired.py', 'tests/test_packaging/test_retired.py')
TEXTS = ('*.md', '*.py', '*.pyi', '*.txt', '*.yml', '*.yaml', '*.sh', '*.toml')
FOLDERS = ('mmrank', 'tools', 'configs', 'docs', '.github', 'requirements')


@pytest.mark.parametrize('name', retired.TYPES)
def test_a_retired_type_of_a_config_says_what_to_do(name):
    registry = pytest.importorskip('mmengine.registry')
    import_module('mmrank.registry')
    root, fix = retired.TYPES[name]
    with pytest.raises(UserError, match=f'mmrank.{name} is gone') as caught:
        getattr(registry, root).build(dict.fromkeys(('type', 'runner_type'), f'mmrank.{name}'))
    assert fix in str(caught.value)


@pytest.mark.parametrize('name', retired.NAMES)
def test_a_retired_name_says_what_to_do(name):
    with pytest.raises(ImportError, match=re.escape(retired.NAMES[name])):
        getattr(losses, name)


@pytest.mark.parametrize(
    'setting', [name for name in retired.SETTINGS if name.partition('.')[0] in losses.__all__]
)
def test_a_retired_setting_of_a_loss_says_what_to_do(setting):
    owner, _, name = setting.partition('.')
    with pytest.raises(TypeError, match=re.escape(retired.SETTINGS[setting])):
        getattr(losses, owner)(**{name: 1})


@pytest.mark.parametrize('name', [n for n in retired.SETTINGS if '.' not in n])
def test_a_retired_setting_of_several_losses_says_what_to_do(name):
    for owner in ('SogCLRLoss', 'ISogCLRLoss', 'BimodalISogCLRLoss', 'SOAPLoss', 'PartialAUCLoss'):
        with pytest.raises(TypeError, match=re.escape(retired.SETTINGS[name])):
            getattr(losses, owner)(9, **{name: 1})


def test_no_page_or_docstring_names_what_is_gone():
    words = {*MORE_WORDS, *retired.TYPES, *retired.NAMES}
    pattern = re.compile('|'.join(rf'(?<!\w){re.escape(word)}(?!\w)' for word in words) or r'(?!)')
    words = {*MORE_WORDS, *retired.TYPES, *retired.NAMES} - {*NAMES_OF_MMENGINE}
    words |= {f'mmrank.{name}' for name in NAMES_OF_MMENGINE}
    pattern = re.compile('|'.join(rf'\b{re.escape(word)}\b' for word in words) or r'(?!)')
    files = [ROOT / 'README.md', ROOT / 'setup.py', ROOT / 'model-index.yml']
    for folder in FOLDERS:
        files += [path for kind in TEXTS for path in (ROOT / folder).rglob(kind)]
    found = []
    for path in sorted(files):
        name = str(path.relative_to(ROOT))
        if name in CHANGES or not path.is_file():
            continue
        lines = path.read_text('utf-8').splitlines()
        found += [f'{name}:{i}: {x.strip()}' for i, x in enumerate(lines, 1) if pattern.search(x)]
    assert not found, '\n'.join(found[:40])
