"""Vision models: images prepared for their towers, the towers, and their features in a step.

``processing`` runs in worker processes and reads no weights; the rest belongs to a loaded model.
"""

from app.model.vision.processing import load_image_processor

__all__ = ["load_image_processor"]
