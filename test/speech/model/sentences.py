"""
What is said to the network: sentences of a small grammar, and words at random, over one vocabulary. Of words that sound
alike only one is in it: what cannot be told by ear is not asked for.
"""
import random

ARTICLES = 'the a the his her their our my this that every'.split()
ADJECTIVES = (
    'old new small big long short warm cold happy sad good bad young early late quiet loud dark light heavy hard soft '
    'clean open full empty green blue white black yellow brown strong rich poor free fast slow great little first '
    'second last next deep high low wide dry wet ready busy sweet simple strange famous beautiful important different'
).split()
NOUNS = (
    'house river door window garden street city town village school teacher student child boy girl man woman mother '
    'father brother sister friend family doctor farmer driver king queen captain soldier worker baker writer singer '
    'dog cat horse bird fish cow sheep tree flower grass forest mountain hill field road bridge boat ship train car bus '
    'plane bicycle station market shop store restaurant hotel kitchen table chair bed lamp clock book letter paper pen '
    'picture story song music game ball park sun moon star sky wind rain snow summer winter spring autumn morning '
    'afternoon evening night day week month year minute water coffee tea milk bread butter cheese apple orange '
    'dinner breakfast lunch food money price ticket answer question word name number room floor wall roof machine '
    'engine computer phone message office company service weather news plan problem idea reason life world country '
    'island beach ocean lake stone gold silver glass fire smoke box bag coat shirt shoe hat hand head face arm '
    'foot heart voice hospital church bank library museum theater team player winner race prize party birthday present '
    'holiday journey map corner center side end part'
).split()
PLURALS = (
    'people children men women parents friends students teachers workers farmers dogs cats horses birds trees flowers '
    'houses streets books letters pictures stories songs games days weeks months years hours minutes words names '
    'numbers rooms windows doors cars boats apples tickets questions answers stones clouds mountains shoes eyes hands '
    'neighbors visitors guests players things lights'
).split()
PAST = (
    'opened closed found lost bought sold made took gave saw heard left kept built broke cleaned carried pushed pulled '
    'moved painted washed watched followed helped called asked told met remembered forgot liked loved wanted needed '
    'used brought caught drew read wrote showed changed covered filled counted visited passed touched finished started '
    'paid enjoyed'
).split()
PAST_ALONE = (
    'walked ran slept waited worked talked laughed cried sang danced arrived left stayed smiled listened stopped sat '
    'stood fell jumped traveled returned played swam rested went came spoke looked lived'
).split()
BASE = (
    'open close find lose sell make take give see leave keep build break clean carry push pull move paint wash '
    'watch follow help call ask tell meet remember forget like love want need use bring catch draw read show '
    'change cover fill count visit finish start pay enjoy learn understand'
).split()
BASE_ALONE = (
    'walk run sleep wait work talk laugh cry sing dance arrive stay smile listen stop sit stand fall jump travel return '
    'play swim rest go come speak look live think come back try'
).split()
PREPOSITIONS = 'in on near under behind before after with without from to into over across beside around through at by for about of between against'.split()
ADVERBS = (
    'again today tomorrow yesterday slowly quickly often always never soon later together alone outside inside here '
    'everywhere away home now then very well still already almost quite much more perhaps really only'
).split()
PRONOUNS = 'he she they we you it i everyone nobody somebody someone'.split()
MODALS = 'will can could should would must may might did not cannot will not could not'.split()
LINKS = 'and but because so while when if although until or as than'.split()
NUMBERS = 'one two three five six seven eight nine ten eleven twelve twenty thirty fifty hundred thousand'.split()
QUANTITIES = 'many few some several most all both no other these those any enough more such'.split()
REST = (
    'is was are were be been has have had does do done am what where who why how which decided tried hope them him us '
    'me your its once half per yes please thank hello goodbye sorry maybe next monday tuesday wednesday thursday friday '
    'saturday sunday january march april june july september october december left right up down off out just even '
    'between each own same true wrong sure kind sort way place time thing'
).split()

# What real sentences are full of, said quickly and hardly heard.
SMALL = 'the the the a a to to of of and and in in with at for on was is it that they their his her he she we you as by'.split()

VOCABULARY = sorted(
    {
        word
        for group in (ARTICLES, ADJECTIVES, NOUNS, PLURALS, PAST, PAST_ALONE, BASE, BASE_ALONE, PREPOSITIONS, ADVERBS)
        + (PRONOUNS, MODALS, LINKS, NUMBERS, QUANTITIES, REST)
        for word in group
    }
)


def thing(pick):
    kind = pick.random()
    if kind < 0.15:
        return pick.choice(PRONOUNS)
    if kind < 0.35:
        return f'{pick.choice(QUANTITIES + NUMBERS[1:])} {pick.choice(PLURALS)}'
    if kind < 0.5:
        return f'the {pick.choice(PLURALS)}'
    if kind < 0.75:
        return f'{pick.choice(ARTICLES)} {pick.choice(NOUNS)}'
    return f'{pick.choice(ARTICLES)} {pick.choice(ADJECTIVES)} {pick.choice(NOUNS)}'


def place(pick):
    return f'{pick.choice(PREPOSITIONS)} {thing(pick)}'


def clause(pick):
    kind = pick.randrange(9)
    if kind == 0:
        return f'{thing(pick)} {pick.choice(PAST)} {thing(pick)}'
    if kind == 1:
        return f'{thing(pick)} {pick.choice(PAST_ALONE)} {pick.choice(ADVERBS)} {place(pick)}'
    if kind == 2:
        return f'{thing(pick)} {pick.choice(MODALS)} {pick.choice(BASE)} {thing(pick)} {pick.choice(ADVERBS)}'
    if kind == 3:
        return f'{thing(pick)} {pick.choice(["is", "was", "are", "were"])} {pick.choice(ADVERBS)} {pick.choice(ADJECTIVES)}'
    if kind == 4:
        return f'{thing(pick)} {pick.choice(["tried", "wanted", "decided", "hope"])} to {pick.choice(BASE_ALONE)} {place(pick)}'
    if kind == 5:
        return f'{pick.choice(["what", "where", "who", "why", "how"])} {pick.choice(["did", "do", "will", "can"])} {thing(pick)} {pick.choice(BASE)} {thing(pick)}'
    if kind == 6:
        return f'{thing(pick)} {pick.choice(["has", "have", "had"])} {pick.choice(["been", "never been", "always been"])} {place(pick)}'
    if kind == 7:
        return f'{pick.choice(BASE)} {thing(pick)} {place(pick)} {place(pick)}'
    return f'{place(pick)} {thing(pick)} {pick.choice(PAST)} {thing(pick)} {place(pick)}'


def sentence(pick: random.Random) -> str:
    """Lower case, with commas: by the grammar, or words at random, so that every word meets every other."""
    kind = pick.random()
    if kind < 0.3:
        return ' '.join(pick.choice(VOCABULARY) for _ in range(pick.randint(2, 11)))
    if kind < 0.55:
        return ' '.join(pick.choice(SMALL if pick.random() < 0.45 else VOCABULARY) for _ in range(pick.randint(3, 14)))
    said = clause(pick)
    if pick.random() < 0.45:
        said += f'{pick.choice([",", ""])} {pick.choice(LINKS)} {clause(pick)}'
    return said
