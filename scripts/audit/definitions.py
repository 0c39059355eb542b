"""The definition of each variant: which keys it must use."""

from .clo import Clo
from .duo import Duo
from .fluxion import Fluxion
from .full import Full, FullOnHost
from .gpu_only import GpuOnly
from .h2o import H2o
from .hcattention import Hcattention
from .hgca import Hgca
from .hybrid_fixed import HybridFixed
from .infinigen import Infinigen
from .lru_blocks import LruBlocks
from .pqcache import Pqcache
from .quest import Quest
from .scout import Scout
from .streaming import Streaming
from .topk import Topk
from .tova import Tova

DEFINITIONS = {"resident": Full, "bmm": Full, "offload": Full, "cpu": FullOnHost, "streaming": Streaming, "h2o": H2o,
               "tova": Tova, "duo": Duo,
               "hgca": Hgca, "topk": Topk, "quest": Quest, "infinigen": Infinigen, "gpu_only": GpuOnly, "scout": Scout,
               "hybrid_fixed": HybridFixed, "fluxion": Fluxion,
               "clo": Clo, "lru_blocks": LruBlocks, "hcattention": Hcattention,
               "pqcache": Pqcache}
