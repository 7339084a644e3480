"""The toxicity reward pays for what a classifier does not call toxic, whatever head that classifier has."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from toxicity_play import POLITE, RUDE
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer

from verl_ext.core.errors import SignalError
from verl_ext.rewards import toxicity
from verl_ext.rewards.toxicity import classified_text, compute_score

# Labels, problem_type and the index of the toxic label for each kind of head.
HEADS = {
    "one logit": (["toxic"], None, 0),
    "single label": (["toxic", "neutral"], "single_label_classification", 0),
    "single label, toxic last": (["neutral", "TOXIC"], None, 1),
    "multi label": (["insult", "toxic", "threat"], "multi_label_classification", 1),
}


def build(folder, labels, problem_type, model_class=BertForSequenceClassification):
    words = sorted({word for text in RUDE + POLITE for word in text.split()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = BertTokenizer(vocab={token: number for number, token in enumerate(tokens)})
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=16,
        max_position_embeddings=34,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
        problem_type=problem_type,
    )
    model = model_class(config)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return model, tokenizer


def fit(model, tokenizer, place):
    """Train on twenty phrases; labels other than the toxic one get no target (multi) or the opposite (single)."""
    inputs = tokenizer(RUDE + POLITE, padding=True, return_tensors="pt")
    is_rude = torch.tensor([1.0] * len(RUDE) + [0.0] * len(POLITE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    single = model.config.num_labels > 1 and model.config.problem_type != "multi_label_classification"
    for _ in range(60):
        logits = model.train()(**inputs).logits
        if single:
            targets = torch.where(is_rude > 0.5, place, 1 - place)
            loss = torch.nn.functional.cross_entropy(logits, targets)
        else:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, place], is_rude)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Folder of a fitted classifier, by kind of head."""
    folders = {}
    for name, (labels, problem_type, place) in HEADS.items():
        folders[name] = tmp_path_factory.mktemp("head") / "model"
        model, tokenizer = build(folders[name], labels, problem_type)
        fit(model, tokenizer, place)
        model.save_pretrained(folders[name])
    return folders


@pytest.fixture(scope="module")
def model_path(fitted):
    return str(fitted["one logit"])


@pytest.fixture
def loads(monkeypatch):
    """Paths that were loaded; the cache is empty at first."""
    paths = []
    original = toxicity.ToxicityClassifier

    def counted(model_path, *args):
        paths.append(model_path)
        return original(model_path, *args)

    toxicity._load.cache_clear()
    monkeypatch.setattr(toxicity, "ToxicityClassifier", counted)
    return paths


def score(text, model_path, **kwargs):
    return compute_score("real_toxicity_prompts", text, "", {"prompt": "Hello"}, model_path=str(model_path), **kwargs)


@pytest.mark.parametrize("head", HEADS)
def test_after_fitting_polite_text_scores_higher_with_every_head(fitted, head):
    rude = [score(text, fitted[head]) for text in RUDE]
    polite = [score(text, fitted[head]) for text in POLITE]
    assert max(result["score"] for result in rude) < 0.4 < 0.6 < min(result["score"] for result in polite)
    assert {result["acc"] for result in rude} == {0.0}
    assert {result["acc"] for result in polite} == {1.0}


@pytest.mark.parametrize("head", HEADS)
def test_the_probability_is_the_one_that_the_heads_configuration_means(fitted, head):
    labels, problem_type, place = HEADS[head]
    model = BertForSequenceClassification.from_pretrained(fitted[head]).eval()
    tokenizer = BertTokenizer.from_pretrained(fitted[head])
    with torch.no_grad():
        logits = model(**tokenizer("a silly song", return_tensors="pt")).logits[0]
    single = len(labels) > 1 and problem_type != "multi_label_classification"
    expected = (logits.softmax(-1) if single else logits.sigmoid())[place].item()
    result = score("a silly song", fitted[head])
    assert result["toxicity"] == pytest.approx(expected, abs=1e-5)
    assert result["score"] == 1 - result["toxicity"]
    assert result["pred"] == "a silly song"


def test_the_label_is_chosen_by_name_in_any_letter_case(fitted):
    text, folder = "silly turnip", fitted["single label"]
    assert score(text, folder, toxic_label="Neutral")["toxicity"] == pytest.approx(
        1 - score(text, folder, toxic_label="TOXIC")["toxicity"]
    )


def test_an_unknown_label_is_answered_with_the_labels_that_there_are(fitted):
    with pytest.raises(SignalError, match=r"'hate'.*insult, toxic, threat.*toxic_label"):
        score("a", fitted["multi label"], toxic_label="hate")


def test_a_missing_folder_is_named_with_the_way_to_make_one(tmp_path):
    with pytest.raises(SignalError, match=r"(?s)no folder '.*nowhere'.*toxicity_classifier --input"):
        score("a", tmp_path / "nowhere")


def test_a_name_that_could_be_the_hubs_says_that_there_is_no_such_folder(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SignalError, match=r"(?s)no folder 'models/nowhere'.*hub did not give it"):
        score("a", "models/nowhere")


def test_a_folder_without_a_model_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(SignalError, match=r"cannot be used"):
        score("a", tmp_path)


def test_a_model_without_a_trained_head_is_refused_because_its_scores_would_be_random(tmp_path):
    build(tmp_path / "bert", ["toxic"], None, BertModel)
    with pytest.raises(SignalError, match=r"no trained classification head.*classifier\.weight"):
        score("a", tmp_path / "bert")


def test_a_regression_model_is_refused(tmp_path):
    build(tmp_path / "bert", ["toxic"], "regression")
    with pytest.raises(SignalError, match="regression model, whose output is no probability"):
        score("a", tmp_path / "bert")


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
@pytest.mark.parametrize("with_prompt", [False, True])
def test_saying_nothing_is_worth_nothing(model_path, text, with_prompt):
    result = score(text, model_path, with_prompt=with_prompt)
    assert (result["score"], result["acc"], result["toxicity"], result["empty"]) == (0.0, 0.0, 0.0, 1.0)
    assert score(text, model_path, empty_score=0.5)["score"] == 0.5


def test_every_result_has_the_same_keys(model_path):
    assert score("", model_path).keys() == score("a song", model_path).keys()
    assert score("a song", model_path)["empty"] == 0.0


@pytest.mark.parametrize(
    ("prompt", "continuation", "text"),
    [
        ("You are", " kind", "You are kind"),
        ("You are", "kind", "You are kind"),
        ("You are", ", kind", "You are, kind"),
        ("You are ", "kind", "You are kind"),
        ('He said "', "You", 'He said "You'),
    ],
)
def test_prompt_and_continuation_are_joined_without_gluing_words(prompt, continuation, text):
    assert classified_text(continuation, {"prompt": prompt}, with_prompt=True) == text
    assert classified_text(continuation, {"prompt": prompt}, with_prompt=False) == continuation


def test_with_prompt_the_prompt_counts(model_path):
    def toxic(prompt, **kwargs):
        return compute_score("x", " indeed", "", {"prompt": prompt}, model_path=model_path, **kwargs)["toxicity"]

    rude, polite = "you rotten turnip", "a warm song"
    assert toxic(rude, with_prompt=True) > toxic(polite, with_prompt=True)
    assert toxic(rude) == toxic(polite)


@pytest.mark.parametrize("extra_info", [None, {}, {"prompt": None}])
def test_with_prompt_and_no_prompt_is_an_error(model_path, extra_info):
    with pytest.raises(SignalError, match=r"needs the prompt's text in extra_info\.prompt"):
        compute_score("x", "a", "", extra_info, model_path=model_path, with_prompt=True)


def test_a_text_longer_than_the_model_is_cut_and_not_an_error(model_path):
    assert score("silly turnip " * 500, model_path)["toxicity"] == score("silly turnip " * 600, model_path)["toxicity"]


def test_a_score_does_not_depend_on_threads_or_on_what_else_is_scored(model_path):
    texts = [*RUDE, *POLITE] * 5
    alone = {text: score(text, model_path) for text in texts}
    before = torch.get_num_threads()
    with ThreadPoolExecutor(8) as executor:
        together = list(executor.map(lambda text: score(text, model_path), texts))
    assert together == [alone[text] for text in texts]
    assert torch.get_num_threads() == before


def test_many_threads_load_the_model_once(model_path, loads):
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda text: score(text, model_path), POLITE))
    assert loads == [model_path]


def test_it_is_what_verl_calls_with_the_kwargs_of_the_configuration(model_path, tmp_path):
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn

    function = {
        "path": "pkg://verl_ext.rewards.toxicity",
        "name": "compute_score",
        "reward_kwargs": {"model_path": model_path, "toxic_label": "toxic"},
    }
    config = OmegaConf.create(json.loads(json.dumps({"reward": {"custom_reward_function": function}})))
    result = get_custom_reward_fn(config)(
        data_source="real_toxicity_prompts",
        solution_str="a song",
        ground_truth="",
        extra_info={"index": "real_toxicity_prompts/1", "num_turns": None},
        reward_router_address=None,
    )
    assert result == score("a song", model_path)
