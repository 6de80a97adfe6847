"""Which architectures the engine treats specially (`srt/configs/model_config.py`, 0.5.23)."""

from __future__ import annotations

DENSE_TYPES = frozenset({"qwen3_5_text"})
"""Dense model types whose configuration class fills in an expert count all the same."""
MIMO_V2 = frozenset({"MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"})
DEEPSEEK_V4 = frozenset(
    {"DeepseekV4ForCausalLM", "DeepseekV4ForCausalLMNextN", "DeepseekV4ForCausalLMDSpark"}
)
SWA_SINKS = frozenset(
    {
        "GptOssForCausalLM",
        "GraniteSWAForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "IQuestQ1ForCausalLM",
        "IQuestQ1MTP",
    }
)
PURE_MAMBA1 = frozenset({"FalconMambaForCausalLM", "MambaForCausalLM"})
PURE_SSM = PURE_MAMBA1 | {"Mamba2ForCausalLM"}
DOTS3 = frozenset({"Dots3NoteForCausalLM", "Dots3NoteForCausalLMNextN"})
KIMI_K3 = frozenset({"KimiK3ForConditionalGeneration", "KimiK3LinearForCausalLM"})
BAILING_V3 = frozenset({"BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"})
MINIMAX_SPARSE = frozenset(
    {"MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"}
)
QWEN3_5 = frozenset(
    {
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5ForCausalLM",
        "Qwen3_5MoeForCausalLM",
    }
)

DSA = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLMNextN",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "GlmMoeDsaForCausalLMNextN",
        "Glm5NextForConditionalGenerationNextN",
        "Glm5NextForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "LongcatFlashForCausalLMNextN",
        "Dots3NoteForCausalLM",
        "Dots3NoteForCausalLMNextN",
        "HYV4ForCausalLM",
        "HYV4ForCausalLMNextN",
    }
)
"""Sparse-attention architectures; one is DSA only where it also states `index_topk`."""

MLA = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV3ForCausalLMNextN",
        "Glm4MoeLiteForCausalLM",
        "Glm4MoeLiteForCausalLMNextN",
        "GlmMoeDsaForCausalLM",
        "GlmMoeDsaForCausalLMNextN",
        "Glm5NextForConditionalGeneration",
        "Glm5NextForConditionalGenerationNextN",
        "LongcatFlashForCausalLM",
        "LongcatFlashForCausalLMNextN",
        "HYV4ForCausalLM",
        "HYV4ForCausalLMNextN",
        "DotsVLMForCausalLM",
        "Dots3NoteForCausalLM",
        "Dots3NoteForCausalLMNextN",
        "MistralLarge3ForCausalLM",
        "MistralLarge3ForCausalLMEagle",
        "KimiK25ForConditionalGeneration",
        "Eagle3DeepseekV2ForCausalLM",
        "GigaChat35ForCausalLM",
        "GigaChat35ForCausalLMNextN",
    }
)
"""MLA with the plain DeepSeek geometry (model_config.py:1366)."""

HYBRID_SWA = frozenset(
    {
        "BeamForCausalLM",
        "Llama4ForConditionalGeneration",
        "MiMoV2MTP",
        "Step3p5ForCausalLM",
        "Step3p5MTP",
        "Step3p7ForConditionalGeneration",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "EmbeddingGemma2Model",
        "Gemma4UnifiedForConditionalGeneration",
        "DiffusionGemmaForBlockDiffusion",
        "LagunaForCausalLM",
        "MellumForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "InklingForConditionalGeneration",
        "InklingForConditionalGenerationMTP",
        "UnlimitedOCRForCausalLM",
        *DEEPSEEK_V4,
        *SWA_SINKS,
        *MIMO_V2,
    }
)
"""Architectures with a sliding-window pool beside the full one (model_config.py:2658)."""

SWA_BY_LAYER_TYPES = frozenset(
    {
        "BeamForCausalLM",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "EmbeddingGemma2Model",
        "Gemma4UnifiedForConditionalGeneration",
        "DiffusionGemmaForBlockDiffusion",
        "LagunaForCausalLM",
        "MellumForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
        *SWA_SINKS,
        *DOTS3,
    }
)
"""Hybrid-SWA architectures whose split stands in `layer_types`."""

HYBRID_SWA_COMPRESS = frozenset(
    {
        *MIMO_V2,
        "MiMoV2MTP",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "EmbeddingGemma2Model",
        "InklingForConditionalGeneration",
        "InklingForConditionalGenerationMTP",
        "Gemma4UnifiedForConditionalGeneration",
        "DiffusionGemmaForBlockDiffusion",
    }
)
"""Hybrid-SWA architectures whose sliding layers have a KV shape of their own (:1249)."""

NOT_GENERATION = frozenset(
    {
        "LlamaEmbeddingModel",
        "MistralModel",
        "LlamaForSequenceClassification",
        "LlamaForSequenceClassificationWithNormal_Weights",
        "InternLM2ForRewardModel",
        "Qwen2ForRewardModel",
        "Qwen3ForRewardModel",
        "Qwen2ForSequenceClassification",
        "Qwen3ForSequenceClassification",
        "Qwen3Model",
        "CLIPModel",
        "BertModel",
        "Contriever",
        "BertForSequenceClassification",
        "XLMRobertaModel",
        "XLMRobertaForSequenceClassification",
        "Gemma2ForSequenceClassification",
        "EmbeddingGemma2Model",
        "Lfm2BidirectionalModel",
    }
)
"""Embedding, reward and classification models, whatever `--is-embedding` says (:2382)."""

MULTIMODAL = frozenset(
    {
        "CLIPModel",
        "Cohere2VisionForConditionalGeneration",
        "Cosmos3EdgeForConditionalGeneration",
        "DeepseekVL2ForCausalLM",
        "Ernie4_5_VLMoeForConditionalGeneration",
        "MiniMaxM3SparseForConditionalGeneration",
        "Gemma3ForConditionalGeneration",
        "Gemma3nForConditionalGeneration",
        "Gemma4ForConditionalGeneration",
        "EmbeddingGemma2Model",
        "Gemma4UnifiedForConditionalGeneration",
        "DiffusionGemmaForBlockDiffusion",
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "Glm5NextForConditionalGeneration",
        "GlmOcrForConditionalGeneration",
        "GlmAsrForConditionalGeneration",
        "GlmImageForConditionalGeneration",
        "Grok1VForCausalLM",
        "Grok1AForCausalLM",
        "LlavaLlamaForCausalLM",
        "Llama4ForConditionalGeneration",
        "LlavaMistralForCausalLM",
        "LlavaQwenForCausalLM",
        "LlavaForConditionalGeneration",
        "LlavaVidForCausalLM",
        "Lfm2VlForConditionalGeneration",
        "LightOnOCRForConditionalGeneration",
        "MiMoV2ForCausalLM",
        "MiMoV2ASRForCausalLM",
        "MiniCPMO",
        "MiniCPMV",
        "Mistral3ForConditionalGeneration",
        "MultiModalityCausalLM",
        "MllamaForConditionalGeneration",
        "MossVLForConditionalGeneration",
        "NemotronH_Nano_VL_V2",
        "NemotronH_Nano_Omni_Reasoning_V3",
        "NemotronH_Omni_Reasoning_V3",
        "MuseGlimmerForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
        "PixtralForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "Qwen3ASRForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "LocateAnythingForConditionalGeneration",
        "InternVLChatModel",
        "InternS1ForConditionalGeneration",
        "InternS1ProForConditionalGeneration",
        "Phi4MMForCausalLM",
        "VoxtralForConditionalGeneration",
        "WhisperForConditionalGeneration",
        "Step3VLForConditionalGeneration",
        "POINTSV15ChatModel",
        "DotsVLMForCausalLM",
        "Dots3NoteForCausalLM",
        "DotsOCRForCausalLM",
        "Sarashina2VisionForCausalLM",
        "NVILAForConditionalGeneration",
        "NVILALiteForConditionalGeneration",
        "DeepseekOCRForCausalLM",
        "UnlimitedOCRForCausalLM",
        "JetVLMForConditionalGeneration",
        "PaddleOCRVLForConditionalGeneration",
        "MiDashengLMModel",
        "StepVLForConditionalGeneration",
        "Step3p7ForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "BailingMMNativeForConditionalGeneration",
        "BailingMM2NativeForConditionalGeneration",
        "BailingMoeV3VLForConditionalGeneration",
    }
)
"""Architectures that are multimodal by name (model_config.py:2416)."""

MULTIMODAL_OFF_BY_DEFAULT = frozenset(
    {
        "Gemma3ForConditionalGeneration",
        "Llama4ForConditionalGeneration",
        "Step3VLForConditionalGeneration",
        "InklingForConditionalGeneration",
    }
)
"""Served as text unless `--enable-multimodal` is given (model_config.py:691)."""

AUDIO = frozenset({"WhisperForConditionalGeneration", "Qwen3ASRForConditionalGeneration"})
ENCODER_DECODER = frozenset(
    {
        "WhisperForConditionalGeneration",
        "MllamaForConditionalGeneration",
        "MossVLForConditionalGeneration",
    }
)
NO_MULTIMODAL_CHUNKED_PREFILL = frozenset(
    {
        "Grok1VForCausalLM",
        "Grok1AForCausalLM",
        "LlavaLlamaForCausalLM",
        "MllamaForConditionalGeneration",
        "MossVLForConditionalGeneration",
        "CLIPModel",
    }
)
NO_PIECEWISE_GRAPH = frozenset(
    {
        *DEEPSEEK_V4,
        "Qwen3NextForCausalLM",
        "Glm5NextForConditionalGeneration",
        "BailingMoeV2_5ForCausalLM",
        "LLaDAModelLM",
    }
)
MULTIMODAL_PIECEWISE_GRAPH = frozenset({"KimiK25ForConditionalGeneration", *MINIMAX_SPARSE})
MULTIMODAL_BREAKABLE_GRAPH = frozenset(
    {
        *MINIMAX_SPARSE,
        "Cohere2VisionForConditionalGeneration",
        "Glm5NextForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "PaddleOCRVLForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "MuseGlimmerForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
    }
)

DRAFT_HEADS = {
    "DeepseekV3ForCausalLM": "DeepseekV3ForCausalLMNextN",
    "DeepseekV32ForCausalLM": "DeepseekV3ForCausalLMNextN",
    "GlmMoeDsaForCausalLM": "GlmMoeDsaForCausalLMNextN",
    "Glm4MoeForCausalLM": "Glm4MoeForCausalLMNextN",
    "Glm4MoeLiteForCausalLM": "Glm4MoeLiteForCausalLMNextN",
    "Glm5NextForConditionalGeneration": "Glm5NextForConditionalGenerationNextN",
    "GlmOcrForConditionalGeneration": "GlmOcrForConditionalGenerationNextN",
    "LongcatFlashForCausalLM": "LongcatFlashForCausalLMNextN",
    "MiMoForCausalLM": "MiMoMTP",
    "MiMoV2ForCausalLM": "MiMoV2MTP",
    "MiMoV2FlashForCausalLM": "MiMoV2MTP",
    "Step3p5ForCausalLM": "Step3p5MTP",
    "InklingForConditionalGeneration": "InklingForConditionalGenerationMTP",
    "GigaChat35ForCausalLM": "GigaChat35ForCausalLMNextN",
    "Step3p7ForConditionalGeneration": "Step3p5MTP",
    "BailingMoeV2ForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeV2_5ForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeV3ForCausalLM": "BailingMoeForCausalLMNextN",
    "Ernie4_5_MoeForCausalLM": "Ernie4_5_MoeForCausalLMMTP",
    "Qwen3NextForCausalLM": "Qwen3NextForCausalLMMTP",
    "Qwen4ExpForConditionalGeneration": "Qwen4ExpForCausalLMMTP",
    "Qwen3MoeForCausalLM": "Qwen3MoeForCausalLMMTP",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5ForCausalLM": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5MoeForCausalLM": "Qwen3_5ForCausalLMMTP",
    "InternS2PreviewForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "InternS2MobiusForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "ExaoneMoEForCausalLM": "ExaoneMoEForCausalLMMTP",
    "ExaoneMoeForCausalLM": "ExaoneMoEForCausalLMMTP",
    "NemotronH_Omni_Reasoning_V3": "NemotronHForCausalLMMTP",
    "NemotronHForCausalLM": "NemotronHForCausalLMMTP",
    "NemotronHPuzzleForCausalLM": "NemotronHForCausalLMMTP",
    "HYV3ForCausalLM": "HYV3ForCausalLMNextN",
    "HYV4ForCausalLM": "HYV4ForCausalLMNextN",
}
"""Draft head that a checkpoint's own architecture becomes when it is loaded as the draft."""

ONE_DRAFT_LAYER = frozenset(
    {
        "DeepseekV4ForCausalLMNextN",
        "MiMoV2MTP",
        "Qwen3NextForCausalLMMTP",
        "Qwen4ExpForCausalLMMTP",
        "Qwen3MoeForCausalLMMTP",
        "Qwen3_5ForCausalLMMTP",
        "ExaoneMoEForCausalLMMTP",
        "NemotronHForCausalLMMTP",
        "HYV3ForCausalLMNextN",
        "HYV4ForCausalLMNextN",
        "Glm5NextForConditionalGenerationNextN",
    }
)
"""Draft heads whose `num_nextn_predict_layers` the engine sets to one."""
