"""A tiny ChestX-ray14 in its published files."""

import cv2
import numpy as np

HEADER = (
    'Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View '
    'Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],'
)
FINDINGS = (
    *('Atelectasis', 'Cardiomegaly', 'Effusion', 'Infiltration', 'Mass'),
    *('Nodule', 'Pneumonia', 'Pneumothorax', 'Consolidation', 'Edema'),
    *('Emphysema', 'Fibrosis', 'Pleural_Thickening', 'Hernia'),
)
NUM_PATIENTS = 60


def findings_of(patient, scan):
    """Labels of an X-ray: half the classes, Hernia for few patients."""
    if scan == 2:
        return 'No Finding'
    names = FINDINGS[(patient + scan) % 2 :: 2]
    return '|'.join(n for n in names if n != 'Hernia' or patient % 4 == 0)


def write_chest_xrays(root):
    """Table, lists and images in two of the published folders.

    Returns:
        Labels by file name, and the names of the test list.
    """
    labels = {
        f'{patient:08d}_{scan:03d}.png': findings_of(patient, scan)
        for patient in range(NUM_PATIENTS)
        for scan in range(3)
    }
    lines = [HEADER]
    for name, text in labels.items():
        patient = int(name[:8])
        lines.append(f'{name},{text},0,{patient},58,M,PA,2682,2749,0.1,0.1,')
    root.mkdir(parents=True, exist_ok=True)
    (root / 'Data_Entry_2017.csv').write_text('\n'.join(lines) + '\n')
    tests = [name for name in labels if int(name[:8]) >= NUM_PATIENTS - 15]
    others = [name for name in labels if name not in tests]
    (root / 'train_val_list.txt').write_text('\n'.join(others))
    (root / 'test_list.txt').write_text('\n'.join(tests) + '\n')
    for index, name in enumerate(labels):
        folder = root / f'images_{1 + index % 2:03d}/images'
        folder.mkdir(parents=True, exist_ok=True)
        image = np.full((16, 16), index, np.uint8)
        cv2.imwrite(str(folder / name), image)
    return labels, tests
