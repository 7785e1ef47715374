// data/text/stories_grammar.c: the grammar of the stories (data/text/grammar.h says how to read it). First the shapes
// of a story, then sentences that shapes share, then words. A story has somebody, something that goes wrong, and an end
// that is good.
//
// A seed's text is the same for ever: whatever is changed here changes all of it, and test_stories.c says so.
//
// In all shapes A is who the story is about, B a friend, F somebody of the family, J somebody at work, D an animal, X
// and Y things, C a colour, P a place, S and T spots, N a number, G food.
#include "data/text/stories.h"

#define GIRL "/she/her/her|"
#define BOY "/he/him/his|"

// clang-format off
static const char shapes[] =
    // Lost and found.
    "[open], [child=A] lost [a look] [colour=C] [thing=X] [near] the [place]. [^A.he] [went] home [adverb], but [child not A] [found] it "
    "[near] the [spot] and [brought] the [C] [X] back to [A.him]. [end]"
    // Whose is it?
    "|[open], [child=A] [found] [a look] [thing=X] [near] the [place]. [^A.he] asked the [job], who [pointed] [adverb] at [a colour] "
    "[animal=D]. The [D] had lost its [X], and [brought] it to its [D.home]. [end]"
    // Two who trade.
    "|[open], [child=A] had [a colour=C] [thing=X], and [child=B not A] had [a look] [thing=Y not X]. [^A.he] [liked] the [Y], and [B] "
    "[liked] the other one. So they traded [near] the [spot], [adverb]. [end]"
    // One rolls away.
    "|[open], [child=A] [brought] [number=N] [fruit=G] to the [place]. But one rolled [near] the [spot], and only [N.less] were left. [^a "
    "nature] [colour] [animal=D] [found] it for [A.him], and got [D.treat]. [end]"
    // Something is missing for the cake.
    "|[open], [child=A] wanted to bake [a flavour] cake, but there was no [staple=X] [near] the [spot]. The [job] had only [staple not X]. "
    "At last [A.his] [family=F] [brought] [number] spoons of [X] from the [place] and [said] [adverb]: \"I will help you.\" [end]"
    // One umbrella for two.
    "|[open], it rained, and [child=A] had [a colour=C] umbrella. [^near] the [spot] stood [child=B not A] with [a look] [thing] and was "
    "[sad]. So both [went] to the [place] under the [C] umbrella and talked [adverb] about [subject]. [end]"
    // An animal is stuck.
    "|[open], [child=A] heard [a sound] [near] the [spot=S]. [^a nature] [colour] [animal=D] could not get out! [^A.he] pulled [adverb] with "
    "[a thing], until it [went] back to its [D.home]. Now it gets [D.treat] [near] the [S] every [weekday]. [end]"
    // Too shy to ask.
    "|In [a cosy] [home] [near] the [place] lived [a colour] [animal=D] called [pet]. It was [sad], because nobody came. [open], [a nature] "
    "[animal=E not D] called [pet] knocked [adverb]. \"Do you like [D.treat]?\" [said] the [E], and now they are friends."
    // A letter for somebody else.
    "|[open], [child=A] got a letter for the [job=J] [near] the [place]. On the way [A.he] saw [number] [sight] and [a nature] [animal]. "
    "\"This is from my [family],\" [said] the [J] [adverb], and gave [A.him] some [food]. [end]"
    // A seed.
    "|[open], [child=A] planted [number=N] seeds [near] the [spot]. [^A.his] [family=F] thought of [flower=X], and the [job=J] thought of "
    "[flower=Y not X]. In [season] there were [N] [colour] [outcome] had been right. [end]"
    // A thief with four legs.
    "|[open], [child=A] missed [a colour=C] [thing=X]. [^A.he] [went] from the [spot] to the [place], and there sat [a nature] [animal=D] "
    "with it [near] its [D.home]. \"Take some [food] and give me my [C] [X],\" [A.he] [said] [adverb]. [end]"
    // Three guesses.
    "|[open], [child=A] got a box from [A.his] [family]. \"Is it [a thing=X]?\" asked [child=B not A]. \"Or [a thing=Y not X]?\" But it was "
    "[a look] [colour] [thing=Z not X Y]. \"I wanted one since [season],\" [said] [A] [adverb], \"for the [place].\" [end]"
    // A race.
    "|[open], [a nature] [animal=D] and [a colour] [animal=E not D] ran to the [place]. But [near] the [spot] sat [child=A], whose [limb=X] "
    "hurt. The [either] bound it [adverb] with [colour] [cloth], and nobody won. [end]"
    // Hide and seek.
    "|[open], [child=A] and [child=B not A] played hide and seek [near] the [place]. [^A.he] counted to [number] and [found] only [a nature] "
    "[animal] [near] the [spot=S]. Then came [a sound] [near] the [spot not S], and there was [B] with [a colour] [thing]. [end]"
    // A kite.
    "|[open], [child=A] made a [colour=C] kite of [cloth]. But the string broke, and it flew to the [place]. \"I saw something [C] [near] "
    "the [spot],\" [said] the [job] [adverb], and [brought] it back with [a look] [thing]. [end]"
    // Mended.
    "|[open], [child=A] broke the [look] [thing=X] of [A.his] [family=F], and hid it [near] the [spot]. [^A.he] felt [sad] and told the [F]. "
    "But the [job] [near] the [place] mended the [X] [adverb] with [a tool] and some [cloth]. [end]"
    // A noise in the dark.
    "|[open], [child=A] was [sad], because of [a sound] [near] the [spot]. [^A.his] [family] took [a colour] [light] and [found] [a nature] "
    "[animal=D]. \"It only wants [D.treat],\" [A.he] [said] [adverb], and [brought] it to its [D.home]. [end]"
    // A promise.
    "|[open], [child=A] had to fetch [food=G] from the [place]. But [child=B not A] had [a colour] [thing], and they played [near] the "
    "[spot] until it was late. \"Oh, the [G]!\" [A.he] [said], and [went] home [adverb]. [^A.his] [family] was [glad]. [end]"
    // Half each.
    "|[open], [child=A] had no lunch and was [sad]. [child=B not A] had [food=G] and [food=H not G]. \"[answer] for you,\" [B.he] [said] "
    "[adverb]. They ate [near] the [spot], and on [weekday] [A.he] [brought] [number] [fruit] from the [place]. [end]"
    // Somebody new.
    "|[open], new people came to live [near] the [place], with a child called [child=A] and [a nature] [animal=D] called [pet]. It ran to "
    "[child=B not A], who had [a colour] [thing]. \"Does it like [D.treat]?\" [said] [B] [adverb], and soon they were friends. [end]"
    // Two colours.
    "|[open], [child=A] could find only one of [A.his] [colour=C] [pair=X]. So [A.he] wore [a look] [colour=K not C] one too, and [went] to "
    "the [place] [adverb]. Soon all wore [X] of two colours. [^a colour] [animal] [found] the lost one [near] the [spot]. [end]"
    // A map.
    "|[open], [child=A] got a map from [A.his] [family]. \"Dig [near] the [spot=S]!\" it said. So [A.he] [went] to the [place] with [a look] "
    "[thing], and [near] the [S] was a box with [number] [colour] [bead]. [end]"
    // Paint.
    "|[open], [child=A] helped the [job=J] to paint the [spot]. [^A.he] [liked] [colour=C], and the [J] [liked] [colour=K not C]. \"Paint it "
    "[colour=M not C K],\" [said] [child not A] [adverb], and in the end it was [ckm]. There was paint on the [limb] too. [end]"
    // The play.
    "|[open], the children gave a play [near] the [place]. [child=A] was [a colour] [animal=D], and forgot what to say. \"I am [a nature] "
    "[D],\" [said] [child=B not A] [adverb], \"and I live in a [D.home]!\" The [job] was [glad]. [end]"
    // From the window.
    "|[open], [child=A] travelled by [vehicle] to the [place]. From the window [A.he] counted [number=N] [sight], and [a nature] [job=J] saw "
    "one more. \"Then there are [N.more],\" [A.he] [said] [adverb]. The [J] gave [A.him] [a colour] [thing]. [end]"
    // A wish.
    "|[open], [child=A] saw a star fall [near] the [place]. \"I want to [skill=X],\" [A.he] [said] [adverb]. [^A.his] [family] asked the "
    "[job], and for [number] weeks they met [near] the [spot]. Now [A.he] can [X] better than [a nature] [animal]. [end]"
    // At the stall.
    "|[open], [child=A] sold [food] to buy [a colour=C] [thing=X] for [number=N] coins. [^A.he] had only [N.less]. Then [a nature] [job] "
    "bought some [adverb], and soon [A.he] [went] to the [place] with [A.his] [C] [X]. [end]"
    // A nest.
    "|[open], [child=A] saw a nest with [number=N] eggs [near] the [spot]. [^A.he] told only [A.his] [family]. One egg stayed whole, but "
    "from [N.less] came [nature] [colour] birds. [child not A] gave them [peck] [adverb], and in [season] they flew to the [place]. [end]"
    // A clock stands still.
    "|[open], the clock [near] the [place] stood still. [child=A] [went] up [adverb] with [a tool] and [a light], and [found] [a nature] "
    "[animal=D] in a nest of [colour] [cloth]. [^A.he] [brought] it to the [spot], and the [job] was [glad]. [end]"
    // Across the water.
    "|[open], [child=A], [a animal=D] and [a animal=E not D] came to a river. The boat carried only two, so the [either] waited [near] the "
    "[place]. On the way [A.he] lost [a colour] [thing], but [a nature] fish [brought] it back [adverb]. [end]"
    // A book goes back.
    "|[open], [child=A] could not find [a look] book about [subject=X]. \"I read it [near] the [spot],\" [said] [A.his] [family] [adverb]. "
    "So they [went] to the [place] together, talked about [X] and ate [food]. [end]";

// clang-format on

const grammar_rule story_rules[] = {
    {"story", "", "[shape]\n\n"},
    {"shape", "", shapes},

    // --- sentences that shapes share
    {"pointed", "", "looked|nodded|pointed|smiled|waved"},
    {"open", "",
     "One [weather] [daypart]|On a [weather] [daypart]|On [weekday] [daypart]|Last [season]|Early in [season]|Before [meal]|After [meal]"},
    {"end", "",
     "That night [A.he] dreamed of [a colour] [animal].|It was the best [weekday] of the [season].|From then on [A.he] was [glad].|So it all ended well."
     "|For [meal] they had [food].|All week [A] talked of nothing else.|At home [A.he] wrote it down [adverb].|They all had [food] for [meal]."
     "|[^meal] was late, but [A] was [glad]."},
    {"either", "", "[D]|[E]"},
    {"answer", "", "The [G]|The [H]"},
    {"outcome", "", "[X], and the [F]|[Y], and the [J]"},
    {"ckm", "", "[C]|[K]|[M]"},

    // --- who
    {"child", "he him his",
     "Ada" GIRL "Albert" BOY "Bea" GIRL "Boris" BOY "Clara" GIRL "Carl" BOY "Dora" GIRL "David" BOY "Ella" GIRL
     "Emil" BOY "Flora" GIRL "Felix" BOY "Grace" GIRL "Gustav" BOY "Hanna" GIRL "Hugo" BOY "Ida" GIRL "Igor" BOY
     "Julia" GIRL "Jonas" BOY "Kate" GIRL "Kurt" BOY "Lena" GIRL "Leo" BOY "Mina" GIRL "Max" BOY "Nora" GIRL "Ned" BOY
     "Olga" GIRL "Otto" BOY "Polly" GIRL "Paul" BOY "Rosa" GIRL "Robin" BOY "Stella" GIRL "Sam" BOY "Tilda" GIRL
     "Tom" BOY "Ursula" GIRL "Urban" BOY "Vera" GIRL "Viktor" BOY "Wanda" GIRL "Will" BOY "Yvonne" GIRL "Yuri" BOY
     "Zoe" GIRL "Zack/he/him/his"},
    {"family", "he him his",
     "mother" GIRL "father" BOY "grandmother" GIRL "grandfather" BOY "aunt" GIRL "uncle" BOY "sister" GIRL
     "brother/he/him/his"},
    {"job", "he him his",
     "baker" BOY "miller" GIRL "farmer" BOY "teacher" GIRL "doctor" GIRL "sailor" BOY "gardener" GIRL "tailor" BOY
     "fisherman" BOY "carpenter" GIRL "smith" BOY "shepherd" BOY "painter" GIRL "cook" BOY "captain" GIRL "nurse" BOY
     "mayor" GIRL "grocer" BOY "potter" GIRL "weaver" BOY "clockmaker" GIRL "driver" BOY "singer" GIRL
     "plumber/she/her/her"},
    {"animal", "home treat",
     "badger/burrow/roots|bear/cave/honey|beaver/lodge/bark|crow/nest/crumbs|deer/thicket/leaves|dormouse/nest/nuts|duck/pond/oats|ferret/hole/eggs"
     "|fox/den/grapes|frog/pool/flies|goat/shed/thistles|goose/yard/barley|hare/hollow/clover|hedgehog/leaf pile/slugs|heron/swamp/minnows|lamb/fold/grass"
     "|lizard/wall/beetles|mole/tunnel/worms|mouse/hole/cheese|otter/bank/fish|owl/tree/moths|pig/sty/acorns|pony/stable/hay|rabbit/warren/carrots"
     "|seal/bay/herrings|sparrow/hedge/seeds|squirrel/oak/hazelnuts|swan/lake/waterweed|toad/ditch/snails|turtle/log/lettuce|weasel/den/plums|wolf/lair/stew"},
    {"pet", "",
     "Biscuit|Button|Captain|Clover|Dandy|Dumpling|Fidget|Ginger|Hazel|Jumper|Muffin|Noodle|Patch|Pepper|Pickle|Rusty|Smoky|Snowball|Trip|Whisker"},

    // --- where and when
    {"place", "",
     "abbey|airfield|airport|bakery|barn|beach|bridge|brook|canal|castle|cave|chapel|church|cottage|dairy|dam|dock|factory|farm"
     "|forest|fort|fountain|garden|gym|harbour|hill|hotel|inn|jetty|lagoon|library|lighthouse|market|marsh|meadow|mill|moat|museum"
     "|nursery|office|orchard|palace|park|pier|playground|pond|quarry|river|ruin|school|shipyard|shop|square|station|swamp|temple"
     "|theatre|tower|tunnel|university|valley|village|vineyard|well|wharf|windmill|workshop|yard|zoo"},
    {"spot", "",
     "anvil|apple tree|armchair|barrel|bathtub|bed|beehive|bench|bookcase|boulder|bush|cabinet|cart|chest|cradle|crate|cupboard"
     "|curtain|desk|drain|dresser|easel|fence|fireplace|flowerpot|gate|hammock|haystack|hedge|kennel|ladder|lamppost|letterbox|log"
     "|mast|mat|nettles|oven|piano|pillar|pump|rock|rosebush|rug|sack|scarecrow|shelf|signpost|sink|snowman|sofa|stairs|statue"
     "|stove|stump|swing|table|tent|trough|trunk|tub|wagon|wall|wardrobe|wheelbarrow|window|woodpile"},
    {"home", "", "burrow|cave|cottage|den|hollow|house|hut|nest|shed|stable|tent|tunnel"},
    {"near", "", "behind|beside|by|close to|in front of|near|next to|not far from|to the left of|to the right of"},
    {"weekday", "", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"},
    {"daypart", "", "morning|afternoon|evening|day"},
    {"season", "", "spring|summer|autumn|winter"},
    {"meal", "", "breakfast|lunch|tea|dinner|supper"},
    {"weather", "",
     "bright|chilly|clear|cloudy|cold|dry|foggy|frosty|grey|hot|mild|misty|rainy|snowy|stormy|sunny|warm|windy"},

    // --- what
    {"thing", "",
     "anchor|apron|axe|balloon|banjo|basket|bell|bib|blanket|bonnet|book|bottle|bow|bracelet|broom|brush|bucket|bugle|button|cage"
     "|camera|candle|coin|comb|compass|cork|crayon|crown|cup|cushion|doll|drum|easel|fan|feather|flag|flute|fork|funnel|globe|glove"
     "|goblet|gong|hammer|hat|hoop|horn|jacket|jar|javelin|jug|kettle|key|ladle|lamp|lantern|lasso|lens|locket|lute|lyre|magnet"
     "|mallet|marble|mask|mirror|mop|mug|needle|net|notebook|oar|overcoat|paddle|parasol|pebble|peg|pencil|piccolo|pillow|pitcher"
     "|plate|puppet|purse|puzzle|quill|quilt|rake|rattle|ribbon|ring|rod|rope|ruler|sabre|saddle|scarf|shell|shovel|sickle|sieve"
     "|sled|slipper|sponge|spoon|stamp|stool|sword|teapot|telescope|thimble|ticket|toy|tray|tripod|trumpet|tuba|vase|vest|violin"
     "|watch|whistle|wig|wreath|yo-yo"},
    {"look", "",
     "bent|big|brittle|broad|bulky|carved|cheap|clean|crooked|curious|dainty|dark|delicate|dull|dusty|elegant|fancy|fine|flat"
     "|fluffy|folded|fragile|funny|gilded|glossy|grand|handsome|heavy|hollow|huge|little|lovely|magic|mossy|muddy|narrow|new|odd"
     "|old|painted|patched|perfect|plain|plump|polished|pretty|quaint|queer|rare|rough|round|rusty|scratched|shabby|shiny|short"
     "|simple|small|smooth|soft|spotted|square|strange|striped|strong|sturdy|tall|thick|thin|tidy|tiny|tough|ugly|wet|wonderful"
     "|worn|woven"},
    {"nature", "",
     "bold|brave|busy|calm|careful|cheerful|clever|clumsy|curious|eager|fat|friendly|funny|gentle|giggling|gruff|handsome|happy"
     "|honest|hungry|jolly|kind|lazy|little|lively|lonely|merry|modest|nervous|nimble|noisy|old|patient|plump|polite|proud|quick"
     "|quiet|restless|serious|shy|silly|sleepy|slow|small|sneezing|strong|tall|thin|timid|tiny|whistling|wise|young"},
    {"colour", "",
     "black|blue|bronze|brown|crimson|golden|green|grey|ivory|lilac|olive|orange|pink|purple|red|scarlet|silver|turquoise|violet|white|yellow"},
    {"number", "less more",
     "three/two/four|four/three/five|five/four/six|six/five/seven|seven/six/eight|eight/seven/nine|nine/eight/ten|ten/nine/eleven|twelve/eleven/thirteen"},
    {"food", "",
     "almonds|bacon|beans|berries|biscuits|bread|broccoli|butter|cabbage|cake|candy|carrots|celery|cheese|cherries|chips|cookies"
     "|corn|crackers|cream|cucumber|currants|custard|dates|dumplings|figs|fudge|ginger|grapes|herbs|honey|jam|jelly|leeks|lentils"
     "|marmalade|meatballs|melon|muffins|mushrooms|noodles|nougat|nuts|oatmeal|olives|pancakes|parsley|pasta|peaches|pears|peas"
     "|pickles|pie|pizza|plums|popcorn|porridge|prunes|pudding|pumpkin|radishes|raisins|rhubarb|rice|rolls|salad|scones|shortbread"
     "|soup|spinach|stew|syrup|toast|toffee|tomatoes|trifle|turnips|waffles|walnuts|yoghurt"},
    {"fruit", "",
     "apples|apricots|buns|chestnuts|eggs|figs|lemons|melons|onions|oranges|peaches|pears|plums|potatoes|pumpkins|tomatoes|turnips|walnuts"},
    {"flavour", "",
     "almond|apple|banana|cherry|chocolate|coconut|honey|lemon|nut|orange|peach|pear|plum|poppy|raspberry|vanilla"},
    {"staple", "", "butter|cinnamon|cocoa|cream|flour|malt|milk|oil|salt|starch|sugar|yeast"},
    {"flower", "",
     "asters|bluebells|daisies|irises|lilies|marigolds|pansies|poppies|roses|snowdrops|sunflowers|tulips|violets"},
    {"limb", "", "ankle|arm|chin|ear|elbow|finger|foot|hand|heel|knee|leg|nose|shoulder|thumb|toe|wrist"},
    {"cloth", "", "cotton|felt|fur|lace|linen|paper|rags|silk|straw|string|velvet|wool"},
    {"tool", "", "bolt|clamp|file|hook|nail|pin|saw|screw|spanner|spring|strap|wedge|wire"},
    {"light", "", "candle|lamp|lantern|torch"},
    {"pair", "", "boots|clogs|gloves|mittens|sandals|shoes|slippers|socks|stockings"},
    {"bead", "",
     "beads|buttons|coins|corks|dice|feathers|keys|marbles|pearls|pebbles|rings|shells|stamps|stars|tickets"},
    {"sight", "",
     "bicycles|boats|bridges|carts|chimneys|cows|geese|haystacks|horses|ladders|mills|sheep|ships|steeples|swans|tents|towers|wagons"},
    {"subject", "",
     "bees|castles|comets|deserts|dragons|giants|ghosts|islands|kings|knights|magnets|oceans|pirates|robots|rockets|stars|trains|volcanoes|whales|wizards"},
    {"vehicle", "", "boat|bus|cart|coach|ferry|lorry|sled|train|tram"},
    {"peck", "", "berries|crumbs|flies|oats|seeds|worms"},

    // --- what they do, and how
    {"said", "", "answered|called|cried|explained|laughed|murmured|replied|said|whispered"},
    {"found", "", "came upon|caught sight of|discovered|found|noticed|spied|spotted"},
    {"brought", "", "brought|carried|took"},
    {"went", "", "crept|cycled|hurried|marched|ran|rode|skipped|strolled|walked|went"},
    {"liked", "", "admired|adored|fancied|liked|loved|preferred|wanted"},
    {"adverb", "",
     "at once|boldly|bravely|calmly|carefully|cheerfully|cleverly|eagerly|firmly|fondly|gently|gladly|gracefully|happily|heartily"
     "|hopefully|keenly|kindly|loudly|merrily|neatly|nimbly|patiently|playfully|politely|promptly|proudly|quickly|quietly|readily"
     "|shyly|slowly|smartly|softly|solemnly|steadily|sweetly|swiftly|tenderly|thoughtfully|warmly|wisely|with a bow|with a smile"},
    {"glad", "", "cheerful|content|delighted|glad|happy|merry|pleased|proud|thankful"},
    {"sad", "", "afraid|cross|downcast|gloomy|lonely|sad|sorry|tired|troubled|unhappy|upset|worried"},
    {"cosy", "", "cosy|dry|neat|quiet|safe|snug|soft|warm"},
    {"sound", "", "buzz|click|creak|crunch|hum|knock|rattle|rustle|scratch|splash|squeak|tap|thump|whistle"},
    {"skill", "", "cook|dance|draw|fish|juggle|knit|paint|read|ride|row|sew|sing|skate|ski|swim|whistle|yodel"},
};
const int story_rule_count = sizeof story_rules / sizeof *story_rules;
